package adapter

import (
	"os/exec"
	"strings"
)

// findProgram looks a program up in PATH, which the agent has, too; a name with
// a slash is taken as it is, relative to the agent's directory.
func findProgram(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	return exec.LookPath(name)
}

// SupportsExec says that beside every process of this launcher others can be run.
func (l CommandLauncher) SupportsExec() bool { return canExec }
