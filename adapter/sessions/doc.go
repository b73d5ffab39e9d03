// Package sessions keeps the agent sessions of an adapter: conversations of a coding agent that can be
// prompted. A session is not a lease and gives no right to any task.
//
// A [Keeper] opens up to [Config.Max] sessions. It reports them to a [Server], asks it for commands and
// sends their results. [Config.Kind] says how a session is kept:
//
//   - A resumable session starts the coding agent for each prompt, with the conversation that the agent
//     has stored. No process runs between prompts.
//   - A resident session of Claude Code is one process. It reads its prompts as lines, and messages to the agent
//     while it works on one. It stores its conversation as well.
//   - A resident session of the preset exec is one process. It reads one line of JSON for each prompt,
//     {"type":"prompt","promptId":"…","text":"…","capability":"…","contextUrl":"…","instructions":"…"},
//     of which the last three may be absent, and answers with the line
//     {"type":"answer","promptId":"…","text":"…"}. Other members of the answer, such as usage, do not
//     count yet. Every other line goes to [Config.Output]. A process that has ended is started again at
//     the next prompt.
//
// Every process runs in the containment of package process and ends with the keeper. Sessions survive
// the keeper in its state directory: the next keeper goes on with the same ids and conversations.
//
// # Access
//
// If the server admits session capabilities, the keeper makes one for each prompt, and sends its hash when it
// has the prompt accepted. A coding agent finds it in PICKET_SESSION_CAPABILITY, with the addresses
// PICKET_PROXY_URL, PICKET_MCP_URL and PICKET_CONTEXT_URL; a command of its own in the line of the prompt. A resident
// Claude Code has one for its process. A capability is valid while a prompt is open that was accepted with its hash.
// It is redacted in answers, reasons and output.
//
// # Prompts
//
// A session takes one prompt at a time. A prompt is written to the state directory, and accepted by
// the server, before the agent sees it. Commands are remembered for a day, so a repeated one sends
// its last result again and does not prompt a second time. A prompt that a dead keeper left behind is
// reported as failed by the next one.
//
// The reason of a refused prompt is prompt_active, expired, session_not_found or keeper_ended. The
// reason of a failed one is timeout, session_stopped, agent_ended, cannot_start, conversation_lost,
// answer_too_long, keeper_ended, keeper_restarted or not_accepted. More about it may follow after a colon. An unknown
// command is refused with unsupported_command.
package sessions
