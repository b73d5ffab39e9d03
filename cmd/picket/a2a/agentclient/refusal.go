package agentclient

import (
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// NotA2A is the error for an answer that is not one of the protocol.
func NotA2A(format string, args ...any) *picket.Error {
	return picket.Refuse(picket.CodeUpstream, "Check that the address is that of an agent which speaks A2A 1.0.", format,
		args...)
}

// failure is what an answer says that is an error: the error of JSON-RPC or of HTTP+JSON, or a problem of HTTP.
type failure struct {
	Error *struct {
		Code    int       `json:"code"`
		Message string    `json:"message"`
		Data    []details `json:"data"`    // of JSON-RPC
		Details []details `json:"details"` // of HTTP+JSON
	} `json:"error"`
	Code   string `json:"code"` // these are of a problem
	Detail string `json:"detail"`
	Title  string `json:"title"`
	Remedy string `json:"remedy"`
}

type details struct {
	Reason   string            `json:"reason"`
	Domain   string            `json:"domain"`
	Metadata map[string]string `json:"metadata"`
}

// refusalIn is the error that an answer tells, nil if it tells none.
func (t *Target) refusalIn(res *http.Response, raw []byte) error {
	var f failure
	isJSON := stdjson.Unmarshal(raw, &f) == nil || f.Error != nil
	if res.StatusCode == http.StatusOK && (!isJSON || f.Error == nil) {
		return nil
	}
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		return picket.Refuse(picket.CodeUpstream, "Give that URL if it is the one of the agent.",
			"the agent sends the request to another address: %s", Excerpt(res.Header.Get("Location")))
	}
	code, said, remedy := codeOfStatus(res.StatusCode), cmp.Or(f.Detail, f.Title), f.Remedy
	if slices.Contains(picket.Codes(), picket.Code(f.Code)) {
		code = picket.Code(f.Code)
	}
	if f.Error != nil {
		said = f.Error.Message
		for _, d := range slices.Concat(f.Error.Data, f.Error.Details) {
			code = codeOfReason(d, code)
			remedy = cmp.Or(d.Metadata["remedy"], remedy)
		}
		if c, known := rpcCodes[f.Error.Code]; known && !slices.Contains(ownReasons(f), code) {
			code = c
		}
	}
	return t.refusal(code, said, remedy, res)
}

// ownReasons are the codes of Picket that an error names, which say more than the code of JSON-RPC.
func ownReasons(f failure) (codes []picket.Code) {
	for _, d := range slices.Concat(f.Error.Data, f.Error.Details) {
		if d.Domain == "picket" {
			codes = append(codes, picket.Code(strings.ToLower(d.Reason)))
		}
	}
	return codes
}

// codeOfReason is the code for the reason of an error, and otherwise fallback.
func codeOfReason(d details, fallback picket.Code) picket.Code {
	if own := picket.Code(strings.ToLower(d.Reason)); d.Domain == "picket" && slices.Contains(picket.Codes(), own) {
		return own
	}
	if code, known := reasons[d.Reason]; known {
		return code
	}
	return fallback
}

// reasons are the codes for the reasons of the protocol.
var reasons = map[string]picket.Code{
	"TASK_NOT_FOUND":                  picket.CodeNotFound,
	"TASK_NOT_CANCELABLE":             picket.CodeStateConflict,
	"PUSH_NOTIFICATION_NOT_SUPPORTED": picket.CodeNotAvailable,
	"UNSUPPORTED_OPERATION":           picket.CodeStateConflict,
	"CONTENT_TYPE_NOT_SUPPORTED":      picket.CodeUnsupportedMedia,
	"VERSION_NOT_SUPPORTED":           picket.CodeNotAvailable,
	"METHOD_NOT_FOUND":                picket.CodeNotAvailable,
	"INVALID_PARAMS":                  picket.CodeValidation,
	"INVALID_REQUEST":                 picket.CodeValidation,
}

// rpcCodes are the codes for those of JSON-RPC.
var rpcCodes = map[int]picket.Code{
	-32700: picket.CodeValidation,
	-32600: picket.CodeValidation,
	-32601: picket.CodeNotAvailable,
	-32602: picket.CodeValidation,
	-32603: picket.CodeInternal,
	-32001: picket.CodeNotFound,
	-32002: picket.CodeStateConflict,
	-32003: picket.CodeNotAvailable,
	-32004: picket.CodeStateConflict,
	-32005: picket.CodeUnsupportedMedia,
	-32006: picket.CodeUpstream,
	-32007: picket.CodeNotAvailable,
	-32008: picket.CodeNotAvailable,
	-32009: picket.CodeNotAvailable,
}

// codeOfStatus is the code for a status of HTTP without a reason.
func codeOfStatus(status int) picket.Code {
	switch status {
	case http.StatusOK:
		return picket.CodeInternal
	case http.StatusUnauthorized:
		return picket.CodeUnauthenticated
	case http.StatusPaymentRequired:
		return picket.CodeBudgetExceeded
	case http.StatusForbidden:
		return picket.CodeForbidden
	case http.StatusNotFound:
		return picket.CodeNotFound
	case http.StatusTooManyRequests:
		return picket.CodeRateLimited
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return picket.CodeUnavailable
	}
	if status < http.StatusInternalServerError {
		return picket.CodeValidation
	}
	return picket.CodeInternal
}

// refusal is what a person reads. Advice of a foreign agent is left out, because it would look like that of Picket.
func (t *Target) refusal(code picket.Code, said, remedy string, res *http.Response) error {
	said = cmp.Or(said, strings.TrimSpace(strconv.Itoa(res.StatusCode)+" "+http.StatusText(res.StatusCode)))
	e := picket.Refuse(code, "", "the agent refuses: %s", Excerpt(said))
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(min(seconds, 3600)) * time.Second
	}
	if t.Server != nil {
		e.Message, e.Remedy = Excerpt(said), text.Excerpt(remedy, 500)
		return t.withRemedy(e)
	}
	switch {
	case code == picket.CodeUnauthenticated || code == picket.CodeForbidden:
		e.Remedy = t.CredentialRemedy
	case code == picket.CodeRateLimited || code == picket.CodeUnavailable:
		e.Remedy = "Try again later."
	case code == picket.CodeNotFound:
		e.Remedy = "Check the address of the agent, and the id."
	}
	return e
}

// withRemedy adds what helps if the Picket server is not there or does not know the key.
func (t *Target) withRemedy(e *picket.Error) error {
	if t.Server == nil {
		return e
	}
	return t.Server.WithRemedy(e)
}

// explain turns the error of a call into one for a person. That of a context stays as it is.
func (t *Target) explain(err error) error {
	if own, ok := errors.AsType[*picket.Error](err); ok {
		return t.withRemedy(own) // without what the library has written around it
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return picket.Refuse(picket.CodeUnavailable, "Try again later.", "the agent did not answer in time").
			WithCause(errors.Join(picket.ErrUnknown, err))
	case errors.Is(err, context.Canceled):
		return err
	}
	if said, ok := errors.AsType[*protocol.Error](err); ok { // within a stream
		return picket.Refuse(codeOfReason(details{Reason: protocol.ErrorReason(said.Err)}, picket.CodeInternal), "",
			"the agent refuses: %s", Excerpt(said.Message))
	}
	return NotA2A("the answer of the agent is not one of A2A 1.0: %s", Excerpt(err.Error()))
}
