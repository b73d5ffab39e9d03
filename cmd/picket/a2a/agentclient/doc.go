// Package agentclient is a client of one agent that speaks the A2A protocol, version 1.0: it reads the card of the
// agent, authenticates as the card asks for, makes the calls, and follows tasks.
//
// What an agent sends is untrusted. Answers are read up to a limit, a card or a redirect cannot send a request to
// another host than those that [Target] allows, and an error of an agent is a [picket.Error] in words of Picket.
package agentclient
