package picket

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/picket-dev/picket/budget"
)

// Bounds of a task, in the unit of the field.
const (
	MaxTitle         = 512
	MaxPayload       = 256 << 10 // bytes of input, output, report or answer
	MaxNumber        = 1<<53 - 1 // above it the store's numbers are not exact
	DefaultPriority  = 5
	DefaultWindow    = 300 // seconds
	MinWindow        = 2
	MaxWindow        = 86_400
	MaxTimeout       = 604_800
	MinStall         = 2
	MaxStall         = 86_400
	DefaultAttempts  = 3
	DefaultBackoff   = 10 // seconds
	maxCapabilities  = 32
	maxLabels        = 32
	maxLabelValueLen = 128
	maxAssignee      = 64
)

// Normalize checks a submitted task and fills in every default. The error
// names the first field that is wrong and what it may be.
func (s *TaskSpec) Normalize() error {
	for _, check := range []func() error{s.checkText, s.checkRouting, s.checkTimes, s.checkPolicy, s.checkLabels,
		func() error { return CheckAssignee("/assignee", s.Assignee) }} {
		if err := check(); err != nil {
			return err
		}
	}
	if s.BudgetEnvelope == nil {
		e := budget.Default()
		s.BudgetEnvelope = &e
	}
	if err := s.BudgetEnvelope.Check(); err != nil {
		return Invalid("/budgetEnvelope", `Send for example {"tokens":250000,"usd":1.5}.`, "budgetEnvelope: %v", err)
	}
	return nil
}

func (s *TaskSpec) checkText() error {
	if strings.TrimSpace(s.Title) == "" {
		return Invalid("/title", "Say in a few words what the task is.", "title is required")
	}
	if n := utf8.RuneCountInString(s.Title); n > MaxTitle {
		return Invalid("/title", "Put the details into input.", "title has %d characters, at most %d are allowed", n,
			MaxTitle)
	}
	if len(s.Input) > MaxPayload {
		return TooLarge("/input", len(s.Input))
	}
	return nil
}

func (s *TaskSpec) checkRouting() (err error) {
	if err := cmp.Or(CheckOptionalName("/role", s.Role), CheckOptionalName("/agent", s.Agent),
		CheckOptionalID("/fixes", "task", s.Fixes)); err != nil {
		return err
	}
	if s.Role == RoleAttached {
		return Invalid("/role", "Name the role of workers that take tasks from a queue.",
			"no task can have the role %s: it is that of the workers of `picket run`, which serve one task each", s.Role)
	}
	s.Needs, err = NormalizeCapabilities("/needs", s.Needs)
	return err
}

// NormalizeCapabilities checks capabilities and returns them sorted without doubles.
func NormalizeCapabilities(field string, tags []string) ([]string, error) {
	if len(tags) > maxCapabilities {
		return nil, Invalid(field, "Name fewer capabilities.", "%s has %d entries, at most %d are allowed", field,
			len(tags), maxCapabilities)
	}
	for i, t := range tags {
		if err := CheckCapability(field+"/"+strconv.Itoa(i), t); err != nil {
			return nil, err
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(tags))), nil
}

func (s *TaskSpec) checkTimes() error {
	return cmp.Or(
		defaultedInRange("/priority", &s.Priority, DefaultPriority, 0, 9),
		defaultedInRange("/leaseWindowSeconds", &s.LeaseWindowSeconds, DefaultWindow, MinWindow, MaxWindow),
		inRange("/timeoutSeconds", s.TimeoutSeconds, 1, MaxTimeout),
		inRange("/stallAfterSeconds", s.StallAfterSeconds, MinStall, MaxStall))
}

func (s *TaskSpec) checkPolicy() error {
	s.Retry = owned(s.Retry)
	if err := cmp.Or(
		defaultedInRange("/retry/maxAttempts", &s.Retry.MaxAttempts, DefaultAttempts, 1, 100),
		defaultedInRange("/retry/backoffSeconds", &s.Retry.BackoffSeconds, DefaultBackoff, 0, 3600)); err != nil {
		return err
	}
	for i, class := range s.Retry.On {
		if err := oneOf("/retry/on/"+strconv.Itoa(i), class, RetryClasses...); err != nil {
			return err
		}
	}
	s.Retry.On = slices.Compact(slices.Sorted(slices.Values(s.Retry.On)))
	if s.Review == ReviewByParent {
		return Invalid("/review",
			"Send human or none; what a run delegates is reviewed by it unless it says otherwise.",
			"a task that no other task delegated has no parent to review it")
	}
	return cmp.Or(
		oneOfOrDefault("/escalate", &s.Escalate, EscalateHuman, EscalateFail),
		oneOfOrDefault("/review", &s.Review, ReviewByHuman, ReviewByNone),
		oneOfOrDefault("/onExit", &s.OnExit, OnExitFail, OnExitComplete))
}

func (s *TaskSpec) checkLabels() error {
	if len(s.Labels) > maxLabels {
		return Invalid("/labels", "Use fewer labels.", "labels has %d entries, at most %d are allowed", len(s.Labels),
			maxLabels)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		if err := CheckLabel("/labels/"+k, k, s.Labels[k]); err != nil {
			return err
		}
	}
	return nil
}

// CheckAssignee refuses a name of a person that could not be part of a key or would not be
// shown as it is. An empty one means nobody.
func CheckAssignee(field, name string) error {
	unsafe := func(r rune) bool {
		return r == '{' || r == '}' || r == utf8.RuneError || !unicode.IsPrint(r)
	}
	if len(name) <= maxAssignee && strings.TrimSpace(name) == name && !strings.ContainsFunc(name, unsafe) {
		return nil
	}
	return Invalid(field, "Send a name such as ada or ada@example.com, or leave it out.",
		"%s is not a name of at most %d bytes, without braces, control characters and spaces around it", field, maxAssignee)
}

// CheckLabel refuses a label that could not be part of a key: its name has 1
// to 64 letters, digits or _ . / -, its value at most 128 bytes without braces
// and control characters.
func CheckLabel(field, name, value string) error {
	if !isLabelName(name) {
		return Invalid(field, "A label's name has 1 to 64 letters, digits or _ . / -.", "%q is not a valid label name",
			name)
	}
	if len(value) > maxLabelValueLen || strings.ContainsAny(value, "{}") ||
		strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return Invalid(field, "A label's value has at most 128 bytes and no braces or control characters.",
			"the value of label %s is not allowed", name)
	}
	return nil
}

// Normalize checks an acquire request and fills in its defaults.
func (a *AcquireRequest) Normalize() error {
	if err := CheckOptionalName("/agentId", a.AgentID); err != nil {
		return err
	}
	if a.PinnedOnly && a.AgentID == "" {
		return Invalid("/agentId", "Send the agent id that the tasks are pinned to.", "pinnedOnly needs agentId")
	}
	var err error
	a.Capabilities, err = NormalizeCapabilities("/capabilities", a.Capabilities)
	if err := cmp.Or(CheckOptionalName("/role", a.Role), err, defaultedInRange("/max", &a.Max, 1, 1, 100),
		defaultedInRange("/waitSeconds", &a.WaitSeconds, 0, 0, 50)); err != nil {
		return err
	}
	if a.WorkspaceRoot != "" &&
		(!strings.HasPrefix(a.WorkspaceRoot, "/") || len(a.WorkspaceRoot) > 1024 ||
			strings.ContainsRune(a.WorkspaceRoot, 0)) {
		return Invalid("/workspaceRoot", "Send an absolute directory of the adapter's machine.",
			"workspaceRoot is not an absolute path of at most 1024 bytes")
	}
	return nil
}

// Normalize checks what is asked for next and fills in its defaults.
func (a *AdvanceRequest) Normalize() error {
	if a.LeaseToken == "" {
		return Invalid("/leaseToken", "Send the leaseToken of the lease that is completed.", "leaseToken is required")
	}
	if a.FencingToken < 0 || a.FencingToken > MaxNumber {
		return Invalid("/fencingToken", "Send the fencingToken of the lease, or leave it out.",
			"fencingToken is not a positive number below 2^53")
	}
	if err := a.Children.Check(); err != nil {
		return err
	}
	return PrefixField("/acquire", a.Acquire.Normalize())
}

// Normalize checks a help request and fills in its defaults.
func (h *HelpRequest) Normalize() error {
	if strings.TrimSpace(h.Question) == "" {
		return Invalid("/question", "Ask the person one clear question.", "question is required")
	}
	if len(h.Options) > 20 {
		return Invalid("/options", "Offer fewer options.", "options has %d entries, at most 20 are allowed",
			len(h.Options))
	}
	if err := cmp.Or(
		oneOfOrDefault("/kind", &h.Kind, HandoffQuestion, HandoffApproval, HandoffBudget),
		oneOfOrDefault("/onDeadline", &h.OnDeadline, OnDeadlineWait, OnDeadlineDeny, OnDeadlineEscalate)); err != nil {
		return err
	}
	if h.DeadlineSeconds == nil && h.OnDeadline != OnDeadlineWait {
		return Invalid("/deadlineSeconds", "Send deadlineSeconds, or leave onDeadline out.",
			"onDeadline %q needs deadlineSeconds", h.OnDeadline)
	}
	return inRange("/deadlineSeconds", h.DeadlineSeconds, 1, 2_592_000)
}

// TooLarge refuses a payload over MaxPayload.
func TooLarge(field string, size int) *Error {
	return Refuse(CodeTooLarge, "Send less: write the rest to a file in the workspace and name it.",
		"%s has %d bytes, at most %d are allowed", field, size, MaxPayload).With("field", field).
		With("limit", MaxPayload)
}

// owned is a copy of *p, or a zero value for nil. What a caller passed by a pointer
// may be shared by its next request, so defaults are filled into a copy.
func owned[T any](p *T) *T {
	var v T
	if p != nil {
		v = *p
	}
	return &v
}

// defaultedInRange sets a missing number to def and refuses one outside lo to hi.
func defaultedInRange(field string, p **int, def, lo, hi int) error {
	if *p == nil {
		*p = &def
		return nil
	}
	return inRange(field, *p, lo, hi)
}

// inRange refuses a number outside lo to hi; a missing one is fine.
func inRange(field string, p *int, lo, hi int) error {
	if p == nil || *p >= lo && *p <= hi {
		return nil
	}
	return Invalid(field, "Send a number from "+strconv.Itoa(lo)+" to "+strconv.Itoa(hi)+".",
		"%s is %d, allowed are %d to %d", field, *p, lo, hi)
}

func oneOfOrDefault[T ~string](field string, p *T, def T, others ...T) error {
	if *p == "" {
		*p = def
		return nil
	}
	return oneOf(field, *p, append([]T{def}, others...)...)
}

func oneOf[T ~string](field string, v T, allowed ...T) error {
	if slices.Contains(allowed, v) {
		return nil
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return Invalid(field, "Send one of: "+strings.Join(names, ", ")+".", "%s is %q, allowed are %s", field, v,
		strings.Join(names, ", "))
}
