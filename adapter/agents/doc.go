// Package agents knows the coding agents that Picket can start: Claude Code,
// Codex, Gemini CLI and OpenCode. For each [Preset] it makes the command line, the prompt
// and the configuration files, and it reads the agent's output for the models it has
// used and for the tools it could not reach. Package adapter starts the
// process itself.
package agents
