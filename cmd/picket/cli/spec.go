package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// SpecFlags are the flags that `run` and `task create` share.
func SpecFlags(c *cobra.Command) {
	f := c.Flags()
	f.Duration("lease-window", 0, "how long the lease lasts without a renewal (default 5m)")
	LimitFlags(c)
	f.Int("retries", 0, "try again up to N times: N+1 attempts")
	f.StringSlice("retry-on", nil, "failures that are tried again: crash, timeout, stalled, no_result")
	f.Duration("backoff", 0, "pause before the second retry, then doubling (default 10s)")
	f.String("budget", "", "dollars its paid calls may cost; a call beyond them is refused (default: the server's)")
	f.String("role", "", "only agents of this role")
	f.StringSlice("need", nil, "a capability an agent must have")
	f.Int("priority", picket.DefaultPriority, "0 to 9, higher first")
	f.String("review", "", "who decides the result: human (default) or none")
	f.String("escalate", "", "where a failed task goes that is not tried again: human (default) or fail")
	f.StringArray("label", nil, "a label key=value")
	f.String("assign", "", "the person who should take its hand-offs and reviews (the assignee); others still can")
	term.Choices(c, "retry-on", "crash", "timeout", "stalled", "no_result")
	term.Choices(c, "review", "human", "none")
	term.Choices(c, "escalate", "human", "fail")
	for _, name := range []string{"lease-window", "backoff"} {
		f.Lookup(name).DefValue = "" // 0s in the help would be a lie
	}
	f.String("input", "", "input for the agent: JSON, else text; @file and - (stdin) are read")
}

// LimitFlags are the flags of the limits of a run.
func LimitFlags(c *cobra.Command) {
	f := c.Flags()
	f.Duration("timeout", 0, "kill a run after this time (class timeout; default for coding agents: 2h)")
	f.Duration("stall-after", 0,
		"nudge a run after this time without a sign of life, and end it after twice this time (class stalled; default for coding agents: 15m)")
	for _, name := range []string{"timeout", "stall-after"} {
		f.Lookup(name).DefValue = ""
	}
}

// TimeoutFlag returns --timeout, or 0 if it was not given.
func TimeoutFlag(cmd *cobra.Command) (time.Duration, error) {
	if !cmd.Flags().Changed("timeout") {
		return 0, nil
	}
	d, _ := cmd.Flags().GetDuration("timeout")
	if d < time.Second {
		return 0, exit.Usagef("--timeout %s: at least 1s", d)
	}
	return d, nil
}

// SpecOf reads the shared flags over what picket.yaml says of the role's tasks.
// What both leave out the server fills in.
func SpecOf(cmd *cobra.Command, cfg settings.Settings, title string) (picket.TaskSpec, error) {
	var spec picket.TaskSpec
	f := cmd.Flags()
	role, _ := f.GetString("role")
	if e, ok := cfg.AgentOfRole(role); ok {
		spec = cfg.TaskOf(e)
	}
	spec.Title, spec.Role = title, role
	cfg = cfg.ForRole(role)
	if err := timeoutOf(cmd, &spec); err != nil {
		return spec, err
	}
	cfg.LimitTask(&spec)
	spec.Needs, _ = f.GetStringSlice("need")
	spec.Assignee, _ = f.GetString("assign")
	if f.Changed("priority") {
		p, _ := f.GetInt("priority")
		spec.Priority = &p
	}
	overrideFromFlag(cmd, "review", &spec.Review)
	overrideFromFlag(cmd, "escalate", &spec.Escalate)
	budget := func(cmd *cobra.Command, spec *picket.TaskSpec) error { return BudgetOf(cfg, cmd, spec) }
	for _, read := range []func(*cobra.Command, *picket.TaskSpec) error{retryOf, budget, labelsOf, inputOf} {
		if err := read(cmd, &spec); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

// overrideFromFlag takes the value of a flag that was given.
func overrideFromFlag[T ~string](cmd *cobra.Command, flag string, p *T) {
	if f := cmd.Flags(); f.Changed(flag) {
		text, _ := f.GetString(flag)
		*p = T(text)
	}
}

func timeoutOf(cmd *cobra.Command, spec *picket.TaskSpec) error {
	d, err := TimeoutFlag(cmd)
	if d != 0 {
		spec.TimeoutSeconds = new(int(math.Ceil(d.Seconds())))
	}
	return err
}

// retryOf reads --retries N as N+1 attempts. Asking for retries without saying
// of what means of a crash or a timeout: anything else would do nothing.
func retryOf(cmd *cobra.Command, spec *picket.TaskSpec) error {
	f := cmd.Flags()
	if !f.Changed("retries") && !f.Changed("retry-on") && !f.Changed("backoff") {
		return nil
	}
	if spec.Retry == nil {
		spec.Retry = &picket.Retry{}
	}
	if f.Changed("retries") {
		n, _ := f.GetInt("retries")
		if n < 0 || n > 99 {
			return exit.Usagef("--retries %d: 0 to 99", n)
		}
		attempts := n + 1
		spec.Retry.MaxAttempts = &attempts
		if n > 0 && spec.Retry.On == nil {
			spec.Retry.On = []picket.ExitClass{picket.ExitCrash, picket.ExitTimeout}
		}
	}
	if f.Changed("retry-on") {
		classes, _ := f.GetStringSlice("retry-on")
		spec.Retry.On = nil
		for _, c := range classes {
			spec.Retry.On = append(spec.Retry.On, picket.ExitClass(c))
		}
	}
	if f.Changed("backoff") {
		d, _ := f.GetDuration("backoff")
		seconds := int(math.Ceil(d.Seconds()))
		spec.Retry.BackoffSeconds = &seconds
	}
	return nil
}

// BudgetOf sets the envelope of a task that --budget names.
func BudgetOf(s settings.Settings, cmd *cobra.Command, spec *picket.TaskSpec) error {
	text, _ := cmd.Flags().GetString("budget")
	if text == "" {
		return nil
	}
	envelope, err := s.EnvelopeOf(text)
	if err != nil {
		return notDollars("--budget", err)
	}
	if envelope.USD < 0 {
		return notDollars("--budget", fmt.Errorf("%s is below zero", text))
	}
	spec.BudgetEnvelope = &envelope
	return nil
}

func labelsOf(cmd *cobra.Command, spec *picket.TaskSpec) (err error) {
	given, _ := cmd.Flags().GetStringArray("label")
	spec.Labels, err = labelPairs(given)
	return err
}

// labelPairs are labels written key=value; nil when there are none.
func labelPairs(given []string) (labels map[string]string, err error) {
	for _, l := range given {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, exit.Usagef("--label %s: write key=value", l)
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[k] = v
	}
	return labels, nil
}

func inputOf(cmd *cobra.Command, spec *picket.TaskSpec) error {
	text, _ := cmd.Flags().GetString("input")
	if text == "" {
		return nil
	}
	raw, err := jsonArgument(cmd, "--input", text)
	spec.Input = raw
	return err
}

// jsonArgument reads a value from the command line: @file and - are read
// first; what is not JSON is taken as text.
func jsonArgument(cmd *cobra.Command, what, text string) (picket.RawJSON, error) {
	var b []byte
	var err error
	switch {
	case text == "-":
		b, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), picket.MaxPayload+1))
	case strings.HasPrefix(text, "@"):
		b, err = os.ReadFile(text[1:])
	default:
		b = []byte(text)
	}
	if err != nil {
		return nil, picket.Refuse(exit.CodeUsage, "After @ comes a file that can be read; - is the standard input.",
			"%s: %v", what, err)
	}
	if len(b) > picket.MaxPayload {
		return nil, picket.TooLarge(what, len(b))
	}
	if v := jsontext.Value(b); len(b) > 0 && v.IsValid() {
		return picket.RawJSON(b), nil
	}
	if v := jsontext.Value(b); len(b) > 0 && (b[0] == '{' || b[0] == '[') {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s looks like JSON and is taken as text: %s\n", what,
			term.OneLine(fmt.Sprint(v.Format())))
	}
	encoded, err := json.Marshal(string(b))
	return picket.RawJSON(encoded), err
}

// Submit makes a task. It is a part of the trace that this command is a part
// of, as its environment says.
func (s *Connection) Submit(ctx context.Context, spec picket.TaskSpec, opts ...client.Option) (picket.Task, error) {
	return s.Tasks.Create(ctx, spec, append(opts, traceHeaders()...)...)
}

// traceHeaders are the headers of the trace that the environment names.
func traceHeaders() []client.Option {
	trace := picket.ParseTrace([]string{os.Getenv("TRACEPARENT")}, []string{os.Getenv("TRACESTATE")})
	if trace == nil {
		return nil
	}
	headers := []client.Option{client.WithHeader("Traceparent", trace.Parent)}
	if trace.State != "" {
		headers = append(headers, client.WithHeader("Tracestate", trace.State))
	}
	return headers
}
