// Package a2a is `picket a2a`: a client of agents that speak the A2A protocol, version 1.0. It talks to the pools of
// the Picket server that the command line uses, and to any other agent.
//
// What a foreign agent sends is untrusted. Answers are read up to a limit (transport.go), texts are shown without
// control characters (output.go), and a card cannot send requests to another host (agent.go).
package a2a
