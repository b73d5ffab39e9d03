// Package adapter is the process beside an agent: it leases tasks, launches an
// agent process for each, renews the lease, watches it, and reports how the
// process ended. Agents never renew; they use the lease and forget about it.
//
// # For the author of an agent
//
// The program is started with its workspace as the current directory and the
// lease in its environment:
//
//	PICKET_TASK_ID           the task
//	PICKET_RUN_ID            this attempt
//	PICKET_FENCING_TOKEN     the number of the lease, for X-Fencing-Token
//	PICKET_LEASE_TOKEN       the bearer for the tool proxy, and a secret
//	PICKET_LEASE_EXPIRES_AT  for information: it is renewed behind your back
//	PICKET_BUDGET_TOKENS     what the task may spend
//	PICKET_BUDGET_USD        the same in dollars, a decimal number
//	PICKET_WORKSPACE         the directory to work in
//	PICKET_PROXY_URL         the tool proxy
//	PICKET_MCP_URL           the same over MCP, if the server has it
//	PICKET_TASK_FILE         a JSON file with the task: see [TaskFile]
//	PICKET_LAST_REPORT       a JSON file with the last report, or null
//	TRACEPARENT, TRACESTATE  the W3C trace context of the task, if it has one
//
// An agent that seems to be stuck finds a file nudge.json beside the task file
// ([NudgeFile]), and the same in the answer of its next tool call.
//
// Read the two files, work, and call tools: POST $PICKET_PROXY_URL/v1/tools/NAME with the lease
// token as bearer. report_progress stores a checkpoint, which the next run gets if this one dies.
// mark_complete hands in the result. request_human_help parks the task until a person answers.
// mark_failed gives up. A refusal says in "remedy" what to do. Status 412 means: stop writing and
// exit, because the task belongs to somebody else now. [NewProxy] is a client for agents written in
// Go.
//
// End with code 0 after mark_complete. Any other end is reported as what it
// was: a crash, a timeout, or no result. A task with onExit "complete" takes
// code 0 as the result and the end of stdout as its output.
//
// # For the author of an adapter
//
// [New] and [Adapter.Run] are a whole worker; [Adapter.RunLease] runs one lease
// that came from elsewhere. Another way to start agents, such as containers,
// is a [process.Launcher]. What this package promises, and another adapter should too
// (package adaptertest is a server to test it against):
//
//   - The first renewal comes before the launch: it confirms that the lease
//     was received. Renewals follow at 60 % of the window, counted from before
//     the last confirmed request was sent, on a clock that goes on in suspend.
//   - A refusal that means a lost lease ([picket.Code.Fenced]) kills the whole
//     tree at once. Any other error keeps the agent until the lease's deadline
//     less a margin of 3 % of the window, at least 1 s (500 ms for windows
//     under 10 s); then the tree is killed. SIGTERM goes first, 10 % before
//     the end, at least 2 s; windows under 10 s have no such stage.
//   - A heartbeat is told every 30 s from launch to exit, one warning when 80 %
//     of the task's timeout are over, and the end for time, all without the
//     agent. Suspend counts.
//   - An agent without a sign of life for stallAfterSeconds is nudged once and
//     ended after as long again; one whose processes are all stopped, after 10 s.
//   - The process is dead before its lease is released, so that the next
//     holder starts alone.
//   - Every report is repeated while its outcome is unknown, and is idempotent.
//
// # Errors
//
// A method of [Proxy] returns a *[picket.Error] as package client does; compare its code by [errors.Is]. A code for
// which [picket.Code.Fenced] is true means that the lease is lost. If [picket.ErrUnknown] is a cause, the call may
// have taken effect; the caller may repeat it, which a Proxy leaves to its caller. If ctx ends during a call, the
// code is CodeUnavailable, and ErrUnknown and the error of ctx are its causes. [Adapter.RunLease] wraps such errors
// and those of the launcher.
//
// # Process trees
//
// On Linux the tree of an agent is held together with a cgroup if the adapter can make one, or else
// by the process to which orphans are re-parented (subreaper). Between adapter and agent stands a
// shim, the same program started again: importing this package is enough. It holds
// the deadline of the lease and gets every new one. It kills the tree when the deadline passes,
// when the adapter asks for it, and when the adapter no longer exists. So neither a killed nor a
// stopped adapter leaves an agent behind. A shim that fails is noticed by the adapter, which then
// does its duty. If both of them are stopped, nobody ends the tree. Its writes through the proxy
// are still refused after the lease.
//
// Without a shim, and elsewhere than on Linux, the tree is a process group: a
// process that leaves it (setsid) escapes the kill, and the agent of a killed
// adapter lives on until someone ends it.
//
// On Linux, that someone is the next [Adapter.Run] on the same StateDir: first
// of all it ends what is left of runs whose adapter is dead and gives their
// leases back.
package adapter
