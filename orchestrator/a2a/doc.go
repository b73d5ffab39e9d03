// Package a2a makes pools of agents endpoints of the A2A protocol, version 1.0, and of RFC-001. A client finds the card
// of a pool, sends it a message, follows the task that the message became, and answers its question. Each such task is
// an ordinary task: an agent of the pool leases it, its calls are fenced and paid for from its envelope, and people
// review it.
//
// The package is a view: it stores nothing of its own. [Server] mounts the routes. An operation checks the right of its
// caller, calls the engine, and translates tasks into those of the protocol (view.go), with what their agents emit
// while they work (emitted.go). One reader of the event log for each namespace and process serves all streams
// (follow.go). Streams, the JSON-RPC binding and the HTTP+JSON binding share the operations (operations.go).
//
// The types are those of the official Go library. Its transports are not used: they open a stream before they have
// checked the request, and cannot answer the status codes of refusals.
package a2a
