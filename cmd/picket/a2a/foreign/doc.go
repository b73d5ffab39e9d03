// Package foreign has workers pass their tasks on to a foreign agent: any agent that speaks A2A 1.0. The [Launcher] of
// such a worker starts no program. Each run sends the task (passon.go) and follows the foreign task (follow.go).
// Meanwhile it shows what the agent says (emit.go) and passes messages on (inbox.go). It asks people what the agent
// asks (ask.go), and hands in the result (result.go).
//
// A run notes how far it is in its reports (checkpoint.go), so that the next run goes on with the same foreign task. A
// worker notes the open foreign tasks in files (opentasks.go), and cancels those that nobody waits for any more.
package foreign
