// Package a2a is `picket a2a`: a client of agents that speak the A2A protocol, version 1.0. It talks to the pools of
// the Picket server that the command line uses, and to any other agent.
//
// What a foreign agent sends is untrusted. Package agentclient bounds it and sends no request to a host that a person
// has not named. The commands show texts without control characters (output.go). Package foreign has the workers that
// pass their tasks on to an agent.
//
// A command about one task is an [onTask], and one about an agent an [onAgent] (command.go).
package a2a
