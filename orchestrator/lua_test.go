package orchestrator_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/moves"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// What can be said about the scripts by reading them: they use no word that
// Go does not know.

var (
	luaRefuse   = regexp.MustCompile(`refuse\((.*)`)
	luaRefusing = regexp.MustCompile(`\b(refuse|fenced|authenticate_run|find_request|load_open_handoff|task_view|` +
		`complete|grant|check_allowed|check_adapter|capability|agent_view|pushes.load_task|refuse_no_envelope|newer_format)\(`)
	luaCode   = regexp.MustCompile(`'([a-z]+_[a-z_]+|forbidden|paused|unauthenticated)(?:\.[a-z_]+)?'`)
	luaEvent  = regexp.MustCompile(`'((?:task|lease|run|handoff|review|namespace|key|write|invariant|store|agent|tool|budget|webhook|session|agent_session|message|heartbeat_policy)\.[a-z_]+)'`)
	luaMove   = regexp.MustCompile(`\b(?:move|close_task)\([^,]+, [^,]+, ('[a-z]+'|\w+)`)
	luaEither = regexp.MustCompile(`local (\w+) = [^\n]* and '(\w+)' or '(\w+)'`)
	luaCalls  = regexp.MustCompile(`\b(note_tool_call|apply_retry_policy|complete|grant|answer_handoff|record_review|` +
		`create_task|expire_lease|stop_runs|cancel_task|cancel_below)\(`)
)

func TestEveryScriptHasAHeader(t *testing.T) {
	for _, f := range kit.LuaSources(t) {
		if strings.HasPrefix(f.Text, "--") && f.Shared() {
			continue
		}
		head, code := f.Header(), f.Code()
		name := regexp.MustCompile(`(?m)^` + f.Name + ` \w+`)
		if !name.MatchString(head) {
			t.Errorf("%s.lua does not say what %q does", f.Name, f.Name+" …")
		}
		for _, want := range []string{"ARGV:", "Reply:"} {
			if !strings.Contains(head, "\n"+want) {
				t.Errorf("%s.lua has no line %q", f.Name, want)
			}
		}
		refuses := luaRefusing.MatchString(code)
		if refuses != strings.Contains(head, "\nErrors:") {
			t.Errorf("%s.lua: it refuses: %v, but it has a line \"Errors:\": %v", f.Name, refuses, !refuses)
		}
		_, errs, _ := strings.Cut(head, "\nErrors:")
		for _, code := range refusedCodes(f) {
			if !strings.Contains(errs, string(code)) && !(strings.Contains(errs, "those of fenced") && code.Fenced()) {
				t.Errorf("%s.lua refuses with %s, which its header does not name", f.Name, code)
			}
		}
	}
}

// refusedCodes lists the codes a file refuses with.
func refusedCodes(f kit.LuaFile) []picket.Code {
	var out []picket.Code
	for line := range strings.Lines(f.Code()) {
		for _, m := range luaRefuse.FindAllStringSubmatch(line, -1) {
			// The code is the first argument; "x and 'a' or 'b'" has two of them.
			arg, _, _ := strings.Cut(m[1], ", '")
			if strings.Contains(m[1], " or '") {
				arg = m[1]
			}
			for _, c := range luaCode.FindAllStringSubmatch(arg, -1) {
				out = append(out, picket.Code(c[1]))
			}
		}
	}
	return out
}

func TestEveryRefusalIsWorded(t *testing.T) {
	used := map[picket.Code]bool{}
	for _, f := range kit.LuaSources(t) {
		for _, code := range refusedCodes(f) {
			used[code] = true
			if !slices.Contains(picket.Codes(), code) && !orchestrator.IsScriptError(code) {
				t.Errorf("%s.lua refuses with %q, which is not a code", f.Name, code)
			}
			if !orchestrator.HasWording(code) {
				t.Errorf("%s.lua refuses with %q, which has no message and remedy", f.Name, code)
			}
		}
	}
	for _, code := range picket.Codes() {
		if orchestrator.HasWording(code) && !used[code] {
			t.Errorf("%s has a wording, but no script answers it", code)
		}
	}
}

func TestEveryEventTypeIsKnown(t *testing.T) {
	known := eventTypes(t)
	used := map[string]bool{"task.review": true, "task.completed": true} // complete makes them of the state
	for _, f := range kit.LuaSources(t) {
		for _, m := range luaEvent.FindAllStringSubmatch(f.Code(), -1) {
			used[m[1]] = true
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s.lua writes %s, which is not an event type", f.Name, m[1])
			}
		}
	}
	for _, kind := range known {
		if strings.Contains(kind, ".") && !used[kind] {
			t.Errorf("no script writes %s", kind)
		}
	}
}

// eventTypes reads the constants of the vocabulary, so none is forgotten here.
func eventTypes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../event.go", nil, 0)
	kit.OK(t, err)
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		if v, isValue := n.(*ast.ValueSpec); isValue && strings.HasPrefix(v.Names[0].Name, "Event") &&
			len(v.Values) == 1 {
			if lit, isLit := v.Values[0].(*ast.BasicLit); isLit {
				s, err := strconv.Unquote(lit.Value)
				kit.OK(t, err)
				out = append(out, s)
			}
		}
		return true
	})
	if len(out) < 20 {
		t.Fatalf("found %d event types only", len(out))
	}
	return out
}

func TestEveryStateIsKnown(t *testing.T) {
	task, run, help := names(picket.TaskStates), names(moves.RunStates), names(picket.HandoffStates)
	for _, rule := range []struct {
		where string
		known []string
	}{
		{`\b(?:t\.state|before|TERMINAL\[)\s*[=~]=\s*'(\w+)'`, append(task, "")},
		{`"state":"(\w+)"`, task},
		{`'by-state:', '(\w+)'`, task},
		{`'need', '(\w+)'`, append(append(slices.Clone(task), help...), "unclaimed", "an_escalated_hand",
			"a_task_that_is_not_running", "another_admin_key")},
		{`\br(?:un)?\.state\s*[=~]=\s*'(\w+)'`, run},
		{`end_lease\([^,]+, [^,]+, '(\w+)'`, run},
		{`\bh\.state\s*[=~]=\s*'(\w+)'`, help},
		{`close_handoff\([^,]+, '(\w+)'`, help},
		{`'handoffs:', '(\w+)'`, help},
		{`local TERMINAL = \{([^}]*)\}`, nil},
	} {
		found := 0
		for _, f := range kit.LuaSources(t) {
			for _, m := range regexp.MustCompile(rule.where).FindAllStringSubmatch(f.Code(), -1) {
				found++
				if rule.known == nil {
					checkTerminal(t, m[1])
				} else if !slices.Contains(rule.known, m[1]) {
					t.Errorf("%s.lua: %s: %q is not a state here", f.Name, m[0], m[1])
				}
			}
		}
		if found == 0 {
			t.Errorf("%s matches nothing: this test looks in the wrong place", rule.where)
		}
	}
}

func names[T ~string](states []T) []string {
	var out []string
	for _, s := range states {
		out = append(out, string(s))
	}
	return out
}

// checkTerminal holds the prelude's table of terminal states against Go's.
func checkTerminal(t *testing.T, table string) {
	t.Helper()
	for _, s := range picket.TaskStates {
		if got := strings.Contains(table, string(s)+" = true"); got != s.Terminal() {
			t.Errorf("TERMINAL says %v about %s, Go says %v", got, s, s.Terminal())
		}
	}
}

// The moves of every script are those of the legal-move table, all of them.
func TestEveryMoveIsLegal(t *testing.T) {
	// What the functions that scripts share may do to a task.
	shared := map[string][]string{}
	files := kit.LuaSources(t)
	for _, f := range files {
		if !f.Shared() {
			continue
		}
		for _, fn := range strings.Split(f.Code(), "\nlocal function ")[1:] {
			name, body, _ := strings.Cut(fn, "(")
			if leadTo := movesOf(t, f.Name, body); len(leadTo) > 0 && name != "move" {
				shared[name] = slices.Compact(slices.Sorted(slices.Values(leadTo)))
			}
		}
	}
	if len(shared["apply_retry_policy"]) != 3 || len(shared["answer_handoff"]) != 1 || len(shared["create_task"]) != 1 {
		t.Fatalf("found these moves in shared functions: %v", shared)
	}
	shared["expire_lease"] = shared["apply_retry_policy"] // both end leases through it,
	shared["stop_runs"] = []string{"handoff", "queued"}
	// and stop_runs does so with class released, which is not a failure.
	shared["note_tool_call"] = []string{"failed", "handoff"} // what nobody tries again
	shared["grant"] = shared["lease_task"]
	shared["cancel_below"] = shared["cancel_task"]
	shared["record_review"] = append(shared["record_review"], shared["create_task"]...)
	verbs := map[string]string{
		"report":         "loop",
		"get_task":       "loop",
		"find_agents":    "loop",
		"expire_due":     "expire",
		"undeliver":      "expire",
		"chore":          "pause",
		"delegate":       "submit",
		"review_subtask": "review",
	}
	// Some of what scripts share is a verb of its own, no matter who does it.
	own := map[string]string{"note_tool_call": "loop", "cancel_task": "cancel", "cancel_below": "cancel"}
	made := map[string][]string{}
	for _, f := range files {
		if f.Shared() {
			continue
		}
		if f.Name == "advance" {
			continue // complete and grant, and nothing of its own
		}
		leadTo := movesOf(t, f.Name, f.Code())
		for _, m := range luaCalls.FindAllStringSubmatch(f.Code(), -1) {
			if verb, ok := own[m[1]]; ok {
				made[verb] = append(made[verb], shared[m[1]]...)
				continue
			}
			leadTo = append(leadTo, shared[m[1]]...)
		}
		verb := f.Name
		if v, ok := verbs[verb]; ok {
			verb = v
		}
		made[verb] = append(made[verb], leadTo...)
	}
	for verb, leadTo := range made {
		for _, to := range leadTo {
			legal := slices.ContainsFunc(append(slices.Clone(picket.TaskStates), ""), func(from picket.TaskState) bool {
				return moves.CanTransition(from, verb, picket.TaskState(to))
			})
			if !legal {
				t.Errorf("%s.lua moves a task to %s, which the table does not allow", verb, to)
			}
		}
	}
	moves.TaskTransitions(func(from picket.TaskState, verb string, to picket.TaskState) {
		if !slices.Contains(made[verb], string(to)) {
			t.Errorf("the table lets %s move a task from %q to %s, but %s.lua does not do it", verb, from, to, verb)
		}
	})
}

// A task ends through close_task only, which closes its envelope.
func TestTasksEndThroughCloseTask(t *testing.T) {
	calls := regexp.MustCompile(`\b(move|close_task)\([^,]+, [^,]+, '([a-z]+)'`)
	found := 0
	for _, f := range kit.LuaSources(t) {
		for _, m := range calls.FindAllStringSubmatch(f.Code(), -1) {
			found++
			if picket.TaskState(m[2]).Terminal() != (m[1] == "close_task") {
				t.Errorf("%s.lua: %s is for the other kind of state", f.Name, m[0])
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d moves", found)
	}
}

// movesOf lists the states that a piece of Lua moves tasks to.
func movesOf(t *testing.T, name, code string) []string {
	t.Helper()
	var out []string
	for _, m := range luaMove.FindAllStringSubmatch(code, -1) {
		if s, quoted := strings.CutPrefix(m[1], "'"); quoted {
			out = append(out, strings.TrimSuffix(s, "'"))
			continue
		}
		if m[1] == "to" && (name == "_prelude" || name == "_close_task") {
			continue // the definition of move, and the move of close_task
		}
		found := false
		for _, either := range luaEither.FindAllStringSubmatch(code, -1) {
			if either[1] == m[1] {
				out, found = append(out, either[2], either[3]), true
			}
		}
		if !found {
			t.Errorf("%s.lua moves a task to %q: this test cannot tell which state that is", name, m[1])
		}
	}
	return out
}
