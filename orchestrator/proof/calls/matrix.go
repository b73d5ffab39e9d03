package calls

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Case is one way to call a script that changes state, as its caller calls
// and repeats it.
type Case struct {
	Name           string // the script, then "/" and a variant
	Setup          func(w *Env)
	Call           func(w *Env, e *orchestrator.Engine) (any, error)
	AnswerVaries   string // why a repeat may answer another number
	RepeatCounts   string // why a repeat is an act of its own, which leaves its own trace
	duplicateIsOne string // why the very same request twice is one act all the same
	SeveralCalls   string // why no time may pass before the repeat: the call has several, and the mishap strikes one
	NoBackground   string // why nobody may call beside
	NeverRepeated  string // why its caller neither sees an error nor repeats
	OverHTTP       bool   // the call goes over HTTP, so its caller does not learn the cause of an error
	noClockRead    string // why nothing may read the clock before the dump
	OtherWhenMoved string // why a store that another server holds refuses it until it is adopted
	OtherWhenFull  string // why a full store lets another part of it through than a store with room
	PassesWhenFull bool   // a full store lets it through, though not its script: nothing but its end is asked for
}

func (c Case) Script() string {
	name, _, _ := strings.Cut(c.Name, "/")
	return name
}

// Fault is what happens to the first call.
type Fault struct {
	Name string
	Kind rig.FaultKind
}

var Faults = []Fault{
	{"request lost", rig.Drop},
	{"reply lost", rig.SwallowReply},
	{"reply late", rig.HoldReply}, // after the repeat
	{"duplicated", rig.Duplicate},
	{"request late", rig.HoldRequest}, // it, too
}

// Pause is the time that passes between a call and its repeat.
func (c Case) Pause() time.Duration {
	if c.SeveralCalls != "" {
		return 0
	}
	return 250 * time.Millisecond
}

// DumpAfterRead is a dump after something has read the clock.
func (w *Env) DumpAfterRead(c Case, answer any) string {
	w.T.Helper()
	if c.noClockRead == "" {
		_, err := w.Direct.Stats(w.Ctx)
		kit.OK(w.T, err)
	}
	text, err := kit.Dump(w.Ctx, w.Raw, answer)
	kit.OK(w.T, err)
	if c.AnswerVaries != "" {
		text = kit.WithoutLines(text, "answer ")
	}
	return text
}

// Baseline runs a case without a mishap: a letter c calls, a dot lets time pass.
func (p Setup) Baseline(c Case, story string) (text string) {
	p.T.Helper()
	if p.Baselines[story] != "" {
		return p.Baselines[story]
	}
	defer func() {
		if p.Baselines != nil {
			p.Baselines[story] = text
		}
	}()
	text, err := p.runBaseline(c, story)
	for try := 0; errors.Is(err, picket.ErrUnknown) && try < 10; try++ { // a machine that stood still is a mishap, too
		text, err = p.runBaseline(c, story)
	}
	if err != nil {
		p.T.Fatalf("without any mishap: %v", err)
	}
	return text
}

func (p Setup) runBaseline(c Case, story string) (string, error) {
	p.T.Helper()
	w := p.NewEnv()
	defer w.Close()
	c.Setup(w)
	var answer any
	for _, act := range story {
		if act == '.' {
			w.Pass(c.Pause())
			continue
		}
		var err error
		if answer, err = c.Call(w, w.Via); err != nil {
			return "", err
		}
	}
	return w.DumpAfterRead(c, answer), nil
}

// ExpectedSteps tells the calm run that a mishap with its repeat must equal.
func (c Case) ExpectedSteps(m Fault) string {
	switch {
	case m.Kind == rig.Drop && c.NeverRepeated != "":
		return "."
	case m.Kind == rig.Drop:
		return ".c"
	case m.Kind == rig.HoldRequest && c.NeverRepeated != "":
		return ".c"
	case m.Kind == rig.HoldRequest && c.RepeatCounts != "":
		return ".cc"
	case m.Kind == rig.HoldRequest:
		return ".c"
	case m.Kind == rig.Duplicate && c.RepeatCounts != "" && c.duplicateIsOne == "":
		return "cc."
	case m.Kind == rig.Duplicate || c.NeverRepeated != "" || c.RepeatCounts == "":
		return "c."
	}
	return "c.c"
}

// Writers are the scripts that the matrix covers.
func Writers() []string {
	var out []string
	for _, c := range All() {
		out = append(out, c.Script())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
