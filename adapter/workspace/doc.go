// Package workspace gives agents a directory to work in: a new one, the user's own, a
// copy of it, or a git worktree.
//
// A [Store] belongs to an adapter. [Store.Open] makes the directory of a run or takes
// over that of the run before. [Store.Commit] brings what the agent has left onto the
// branch of the task, and [Store.Evidence] describes it for the review.
//
// A workspace stays after its run, since the next run of the task may need it.
// [KeptWorkspaces] lists the workspaces of a machine and deletes them once their tasks
// are decided.
//
// An agent can do what it likes in its directory, and works as the same user. So this
// package follows no link that it finds there, starts no program that the agent has
// configured for git, and deletes only directories that it has made.
package workspace
