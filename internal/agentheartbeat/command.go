package agentheartbeat

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// commandTimeout bounds one command.
const commandTimeout = time.Minute

// output is what a command of picket did. Its answer has the standard output.
type output struct {
	*answer
	code   int
	errors string // standard error
}

// picket executes a command of picket as an operator, with a text on standard input.
func (t *Trial) picket(stdin string, args ...string) output {
	return t.finish(t.startPicket(stdin, args...))
}

// startPicket begins a command, and does not wait for its end.
func (t *Trial) startPicket(stdin string, args ...string) <-chan output {
	ended := make(chan output, 1)
	ctx := t.Ctx
	go func() { ended <- t.s.execute(ctx, stdin, args...) }()
	return ended
}

func (t *Trial) finish(ended <-chan output) output {
	o := <-ended
	t.Accept(o.answer)
	return o
}

// execute runs picket without the configuration of this machine.
func (s *suite) execute(ctx context.Context, stdin string, args ...string) output {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.cfg.Picket, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.dir, strings.NewReader(stdin), &out, &errs
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "XDG_CONFIG_HOME=" + s.dir,
		"XDG_DATA_HOME=" + s.dir, "XDG_STATE_HOME=" + s.dir, "NO_COLOR=1",
		"PICKET_URL=" + s.URL, "PICKET_API_KEY=" + s.Keys[operator]}
	err := cmd.Run()
	o := output{answer: &answer{Curl: "picket " + strings.Join(args, " "), Raw: out.Bytes()}, errors: errs.String()}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		o.code = exit.ExitCode()
	} else if err != nil {
		o.Err = err
	}
	_ = json.Unmarshal(o.Raw, &o.Body)
	return o
}

// succeeds executes a command with -o json, and answers what it prints.
func (t *Trial) succeeds(stdin string, args ...string) output {
	return t.expectExit(t.picket(stdin, append(args, "-o", "json")...), 0)
}

// expectExit expects an exit code.
func (t *Trial) expectExit(o output, code int) output {
	if o.Err != nil || o.code != code {
		t.Last = o.answer
		t.Fail("exit code "+number(code), "exit code "+number(o.code)+": "+o.errors+o.String())
	}
	return o
}

// heartbeatCommand is the beginning of a command about policies.
func heartbeatCommand(verb string, args ...string) []string {
	return append([]string{"agent", "heartbeat", verb}, args...)
}
