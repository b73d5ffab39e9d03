package picket

import (
	"errors"
	"fmt"
	"time"
)

// Code names a refusal. It travels in the body of every error answer and is
// itself an error, so errors.Is(err, picket.CodeStaleFence) works on anything
// an engine, a proxy or a client returns.
type Code string

// The codes, grouped by the HTTP status each is answered with.
const (
	CodeValidation   Code = "validation_failed" // 400
	CodeNotAvailable Code = "not_available"     // 400: a field of something not built yet
	// 400: a change of a wake policy has its condition in the body
	CodeIfMatchHeader   Code = "heartbeat_if_match_header_unsupported"
	CodeSessionRequired Code = "session_required" // 400: an agent name does not have exactly one

	CodeUnauthenticated Code = "unauthenticated" // 401
	// 401: the session capability was not made for an open prompt, or its prompt is over
	CodeSessionCapability Code = "session_capability_invalid"

	CodeBudgetExceeded Code = "budget_exceeded" // 402

	CodeForbidden          Code = "forbidden"            // 403
	CodeLeaseRequired      Code = "lease_required"       // 403: a session capability does not open it
	CodeTaskMismatch       Code = "task_mismatch"        // 403
	CodeAuthorCannotReview Code = "author_cannot_review" // 403
	CodeUnpricedTool       Code = "unpriced_tool"        // 403: nobody has said what a call costs
	CodeDestination        Code = "destination_refused"  // 403: an address that calls may not reach

	CodeNotFound         Code = "not_found"           // 404
	CodeNoPolicy         Code = "heartbeat_no_policy" // 404: the agent name has no wake policy
	CodeRevisionNotFound Code = "revision_not_found"  // 404
	CodeMethodNotAllowed Code = "method_not_allowed"  // 405

	CodeStateConflict Code = "state_conflict"  // 409
	CodeTaskClosed    Code = "task_closed"     // 409
	CodeOffset        Code = "offset_conflict" // 409: log bytes beyond the known end
	CodeVersion       Code = "version_conflict"
	CodeAgentDraining Code = "agent_draining"
	CodeChildrenOpen  Code = "children_open"    // 409: subtasks are not finished
	CodeInboxFull     Code = "inbox_full"       // 409: too many messages wait there
	CodeCallRunning   Code = "call_in_progress" // 409: the same call is under way
	CodeCallRepeated  Code = "call_repeated"    // 409: the same paid call too often in a row
	CodeLeaseEnding   Code = "lease_ending"     // 409: too late to begin something outside
	CodeDelegation    Code = "delegation_limit" // 409: too deep, or too many children
	// 409: the wake policy is another one than expected_digest says
	CodePolicyConflict Code = "heartbeat_conflict"

	CodeAgentGone     Code = "agent_gone"     // 410: dead, deregistered or superseded: register again
	CodeCursorExpired Code = "cursor_expired" // 410

	CodeStaleFence    Code = "stale_fence"    // 412: the presented token is lower than the current one
	CodeUnknownFence  Code = "unknown_fence"  // 412: the presented token is higher than any granted
	CodeLeaseExpired  Code = "lease_expired"  // 412
	CodeLeaseReleased Code = "lease_released" // 412
	CodeTaskCancelled Code = "task_cancelled" // 412
	// 412: the lease is from before the store was adopted: reclaim it, then repeat
	CodeReclaimRequired Code = "reclaim_required"

	CodeTooLarge            Code = "too_large"              // 413
	CodeUnsupportedMedia    Code = "unsupported_media_type" // 415
	CodeIdempotencyConflict Code = "idempotency_conflict"   // 422
	CodePolicyInvalid       Code = "heartbeat_invalid"      // 422: the text of a wake policy

	CodePreconditionRequired Code = "precondition_required" // 428: If-Match or a digest is missing

	CodeRateLimited  Code = "rate_limited"   // 429
	CodeTooManyLanes Code = "too_many_lanes" // 429
	CodeQuota        Code = "quota_exceeded" // 429: what one key, lease or task may keep or hold open

	CodeInternal Code = "internal"        // 500
	CodeUpstream Code = "upstream_failed" // 502: what a tool stands for did not answer
	// 502: no adapter has accepted a wake
	CodeSyntheticPromptFailed Code = "synthetic_prompt_failed"
	CodeUnavailable           Code = "orchestrator_unavailable" // 503
	CodeStoreFull             Code = "store_full"               // 503
	CodePaused                Code = "paused"                   // 503
	CodeUpstreamTimeout       Code = "upstream_timeout"         // 504: it did not answer in time
)

type codeFacts struct {
	status int
	title  string
}

// codes is the one code-to-status table.
var codes = map[Code]codeFacts{
	CodeValidation:            {400, "Invalid request"},
	CodeNotAvailable:          {400, "Not available yet"},
	CodeIfMatchHeader:         {400, "If-Match is not supported"},
	CodeSessionRequired:       {400, "Session required"},
	CodeUnauthenticated:       {401, "Not authenticated"},
	CodeBudgetExceeded:        {402, "Budget exceeded"},
	CodeForbidden:             {403, "Not allowed"},
	CodeLeaseRequired:         {403, "Lease required"},
	CodeTaskMismatch:          {403, "Lease of another task"},
	CodeAuthorCannotReview:    {403, "The author cannot review"},
	CodeUnpricedTool:          {403, "Tool without a price"},
	CodeDestination:           {403, "Destination refused"},
	CodeNotFound:              {404, "Not found"},
	CodeNoPolicy:              {404, "No wake policy"},
	CodeRevisionNotFound:      {404, "Revision not found"},
	CodeMethodNotAllowed:      {405, "Method not allowed"},
	CodeStateConflict:         {409, "Wrong state"},
	CodeTaskClosed:            {409, "Task is closed"},
	CodeOffset:                {409, "Log offset beyond the known end"},
	CodeVersion:               {409, "Version conflict"},
	CodeAgentDraining:         {409, "Agent is draining"},
	CodeChildrenOpen:          {409, "Subtasks are open"},
	CodeInboxFull:             {409, "Inbox is full"},
	CodeCallRunning:           {409, "Call in progress"},
	CodeCallRepeated:          {409, "Call repeated too often"},
	CodeLeaseEnding:           {409, "Lease is ending"},
	CodeDelegation:            {409, "Delegation limit"},
	CodePolicyConflict:        {409, "Another wake policy"},
	CodeAgentGone:             {410, "Agent is gone"},
	CodeCursorExpired:         {410, "Cursor expired"},
	CodeStaleFence:            {412, "Stale fencing token"},
	CodeUnknownFence:          {412, "Unknown fencing token"},
	CodeLeaseExpired:          {412, "Lease expired"},
	CodeLeaseReleased:         {412, "Lease released"},
	CodeTaskCancelled:         {412, "Task cancelled"},
	CodeReclaimRequired:       {412, "Reclaim required"},
	CodeTooLarge:              {413, "Too large"},
	CodeUnsupportedMedia:      {415, "Unsupported media type"},
	CodeIdempotencyConflict:   {422, "Idempotency key reused"},
	CodePolicyInvalid:         {422, "Invalid wake policy"},
	CodePreconditionRequired:  {428, "Precondition required"},
	CodeRateLimited:           {429, "Too many requests"},
	CodeTooManyLanes:          {429, "Too many lanes"},
	CodeQuota:                 {429, "Quota exceeded"},
	CodeInternal:              {500, "Internal error"},
	CodeUpstream:              {502, "Upstream failed"},
	CodeSyntheticPromptFailed: {502, "Wake not accepted"},
	CodeUnavailable:           {503, "Orchestrator unavailable"},
	CodeStoreFull:             {503, "Store full"},
	CodePaused:                {503, "Paused"},
	CodeUpstreamTimeout:       {504, "Upstream timed out"},
	CodeSessionCapability:     {401, "Session capability not valid"},
}

// Codes lists every code, in no order.
func Codes() []Code {
	all := make([]Code, 0, len(codes))
	for c := range codes {
		all = append(all, c)
	}
	return all
}

// Error is the code itself, so a bare Code can be returned as an error.
func (c Code) Error() string { return string(c) }

// Status is the HTTP status the code is answered with; 500 for a code that is
// not in the table.
func (c Code) Status() int {
	if f, ok := codes[c]; ok {
		return f.status
	}
	return 500
}

// Title is a short human name of the code.
func (c Code) Title() string {
	if f, ok := codes[c]; ok {
		return f.title
	}
	return "Error"
}

// Retryable reports whether the same request may succeed later unchanged.
func (c Code) Retryable() bool {
	switch c {
	case CodeUnavailable, CodeStoreFull, CodePaused, CodeRateLimited:
		return true
	}
	return false
}

// Fenced reports whether the code means that the caller's lease no longer
// holds, so that it must stop writing: a definite loss.
func (c Code) Fenced() bool {
	switch c {
	case CodeStaleFence, CodeUnknownFence, CodeLeaseExpired, CodeLeaseReleased, CodeTaskCancelled, CodeTaskMismatch:
		return true
	}
	return false
}

// Error is a refusal: what happened, what to do about it, and the facts.
type Error struct {
	Code    Code
	Message string // one sentence, for people and models
	Remedy  string // what to do next, an instruction
	// Facts are extra members of the error body, such as "presented" and
	// "current" of a stale fence, or "field" of a validation error.
	Facts map[string]any
	// RetryAfter is sent as Retry-After when positive.
	RetryAfter time.Duration
	cause      error
}

// Refuse makes an Error with a formatted message.
func Refuse(code Code, remedy, format string, args ...any) *Error {
	return &Error{Code: code, Remedy: remedy, Message: fmt.Sprintf(format, args...)}
}

// Invalid is a validation refusal about one field, named by its JSON path.
func Invalid(field, remedy, format string, args ...any) *Error {
	return Refuse(CodeValidation, remedy, format, args...).With("field", field)
}

// PrefixField names the field of a refusal by where it stands in a larger body.
func PrefixField(prefix string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		if field, ok := e.Facts["field"].(string); ok {
			e.With("field", prefix+field)
		}
	}
	return err
}

// NotAvailable refuses a field or flag of something that is not built yet.
func NotAvailable(field, subject string) *Error {
	return Refuse(CodeNotAvailable, "Leave "+field+" out.", "%s needs %s, which this version does not have yet", field,
		subject).
		With("field", field).With("subject", subject)
}

// With adds a fact and returns the error.
func (e *Error) With(key string, value any) *Error {
	if e.Facts == nil {
		e.Facts = map[string]any{}
	}
	e.Facts[key] = value
	return e
}

// WithCause records the cause, which is logged and never sent.
func (e *Error) WithCause(err error) *Error {
	e.cause = err
	return e
}

// Error is the message, or the code when there is none.
func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return e.Message
}

// Is makes errors.Is(err, CodeX) true for an Error with that code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf finds the code in an error chain; CodeInternal when there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if c, ok := errors.AsType[Code](err); ok {
		return c
	}
	return CodeInternal
}

// RefusalOf finds the refusal in an error chain, and makes one of a plain code. ok is false for any
// other error, whose text must not be shown to callers.
func RefusalOf(err error) (refusal *Error, ok bool) {
	if errors.As(err, &refusal) {
		return refusal, true
	}
	if code, ok := errors.AsType[Code](err); ok {
		return &Error{Code: code, Message: code.Title()}, true
	}
	return nil, false
}

// ErrUnknown marks a request whose outcome is not known: the reply was lost,
// so it may or may not have taken effect. Repeat it with the same id.
var ErrUnknown = errors.New("outcome unknown")
