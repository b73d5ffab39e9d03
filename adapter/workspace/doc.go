// Package workspace gives agents a directory to work in: a new one, the user's own, a
// copy of it, or a git worktree. It commits and hands out what an agent has left
// there, and keeps workspaces until their tasks are decided.
package workspace
