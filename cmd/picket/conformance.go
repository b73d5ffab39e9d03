package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
)

// conformanceProgram is the binary that holds the conformance suites.
const conformanceProgram = "picket-conformance"

// newConformance is `picket conformance`. The suites are a binary of their own,
// which takes the place of this process, with the same arguments.
func newConformance() *cobra.Command {
	return &cobra.Command{
		Use:                "conformance [command]",
		Short:              "Check a server against a published protocol, rule by rule",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := findConformance()
			if err != nil {
				return err
			}
			err = syscall.Exec(path, append([]string{conformanceProgram}, args...), os.Environ())
			return picket.Refuse(picket.CodeNotAvailable, "Build it again: go build ./cmd/"+conformanceProgram,
				"%s cannot be started: %v", path, err)
		},
		ValidArgsFunction: completeConformance,
	}
}

// completeConformance asks the binary with the suites to complete an argument. Its
// answer has a line for each choice and ends with a colon and the directive.
func completeConformance(cmd *cobra.Command, args []string, begun string) (
	[]cobra.Completion, cobra.ShellCompDirective,
) {
	path, err := findConformance()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ask := append(append([]string{cobra.ShellCompRequestCmd}, args...), begun)
	answer, err := exec.CommandContext(cmd.Context(), path, ask...).Output()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	lines := strings.Split(strings.TrimSpace(string(answer)), "\n")
	last := len(lines) - 1
	directive, err := strconv.Atoi(strings.TrimPrefix(lines[last], ":"))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:last], cobra.ShellCompDirective(directive)
}

// findConformance looks beside this binary, then on PATH.
func findConformance() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), conformanceProgram)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(conformanceProgram)
	if err != nil {
		return "", picket.Refuse(picket.CodeNotAvailable,
			"Build it with `go build ./cmd/"+conformanceProgram+"`, and put it beside picket or on PATH.",
			"%s is neither beside picket nor on PATH", conformanceProgram)
	}
	return path, nil
}
