package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

func TestComplaintsKeepSecretsAndSayWhatToDo(t *testing.T) {
	var out bytes.Buffer
	root := newRoot()
	cli.PrintError(&out, root, picket.Invalid("/title", "Say what.", "it is required").With("requestId", "req_1"))
	if got := out.String(); got != "picket: /title: it is required [validation_failed]\n  fix: Say what.\n" {
		t.Errorf("complaint: %q", got)
	}
	out.Reset()
	cli.PrintError(&out, root, exit.Status(4))
	if out.Len() != 0 {
		t.Errorf("a quiet end said %q", out.String())
	}
}

func TestAdviceCannotSteerTheTerminal(t *testing.T) {
	var out bytes.Buffer
	cmd := newRoot()
	cmd.SetErr(&out)
	cli.PrintNext(cmd, "picket x a\x1b[2Jb\u202e")
	cli.PrintError(&out, cmd, exit.Usagef("a\x1b[2Jb"))
	if got := out.String(); strings.ContainsAny(got, "\x1b\u202e") {
		t.Errorf("next and complain print %q", got)
	}
}
