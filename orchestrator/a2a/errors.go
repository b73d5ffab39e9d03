package a2a

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// failure is an error as both bindings tell it.
type failure struct {
	code    int    // of JSON-RPC
	status  int    // of HTTP
	grpc    string // name of the status in an HTTP body
	reason  string // of the detail ErrorInfo
	domain  string // whose reason it is
	message string
	facts   map[string]string // of the detail ErrorInfo
	retry   time.Duration     // when to send the request again, 0 if that would not help
}

const (
	errorInfoType  = "type.googleapis.com/google.rpc.ErrorInfo"
	retryInfoType  = "type.googleapis.com/google.rpc.RetryInfo"
	protocolDomain = "a2a-protocol.org"
	ownDomain      = "picket"
)

// protocolErrors are the errors of the protocol.
var protocolErrors = []struct {
	err    error
	code   int
	status int
	grpc   string
}{
	{protocol.ErrParseError, -32700, http.StatusBadRequest, "INVALID_ARGUMENT"},
	{protocol.ErrInvalidRequest, -32600, http.StatusBadRequest, "INVALID_ARGUMENT"},
	{protocol.ErrMethodNotFound, -32601, http.StatusNotFound, "NOT_FOUND"},
	{protocol.ErrInvalidParams, -32602, http.StatusBadRequest, "INVALID_ARGUMENT"},
	{protocol.ErrTaskNotFound, -32001, http.StatusNotFound, "NOT_FOUND"},
	{protocol.ErrTaskNotCancelable, -32002, http.StatusBadRequest, "FAILED_PRECONDITION"},
	{protocol.ErrPushNotificationNotSupported, -32003, http.StatusBadRequest, "FAILED_PRECONDITION"},
	{protocol.ErrUnsupportedOperation, -32004, http.StatusBadRequest, "FAILED_PRECONDITION"},
	{protocol.ErrUnsupportedContentType, -32005, http.StatusBadRequest, "INVALID_ARGUMENT"},
	{protocol.ErrVersionNotSupported, -32009, http.StatusBadRequest, "FAILED_PRECONDITION"},
}

// ownErrors are refusals of Picket that the protocol has an error for.
var ownErrors = map[picket.Code]error{
	picket.CodeValidation:          protocol.ErrInvalidParams,
	picket.CodeIdempotencyConflict: protocol.ErrInvalidParams,
	picket.CodeTooLarge:            protocol.ErrInvalidParams,
	picket.CodeNotFound:            protocol.ErrTaskNotFound,
	picket.CodeTaskClosed:          protocol.ErrUnsupportedOperation,
	picket.CodeStateConflict:       protocol.ErrUnsupportedOperation,
	picket.CodeInboxFull:           protocol.ErrUnsupportedOperation,
	picket.CodeDelegation:          protocol.ErrUnsupportedOperation,
	picket.CodeUnsupportedMedia:    protocol.ErrUnsupportedContentType,
}

// serverError is the code that JSON-RPC leaves to servers, for refusals that the protocol has no error for.
const serverError = -32000

// failureOf translates an error. What the client cannot know of an unexpected one is left out.
func failureOf(err error) failure {
	var own *picket.Error
	if errors.As(err, &own) {
		return ownFailure(own)
	}
	for _, p := range protocolErrors {
		if errors.Is(err, p.err) {
			return failure{code: p.code, status: p.status, grpc: p.grpc, reason: protocol.ErrorReason(p.err),
				domain: protocolDomain, message: sentence(err)}
		}
	}
	return failure{code: -32603, status: http.StatusInternalServerError, grpc: "INTERNAL", reason: "INTERNAL_ERROR",
		domain: protocolDomain, message: "the request failed on the server"}
}

// ownFailure translates a refusal of Picket: its remedy and field are facts of the error.
func ownFailure(own *picket.Error) failure {
	f := failure{
		code:    serverError,
		status:  own.Code.Status(),
		grpc:    grpcStatus(own.Code.Status()),
		reason:  strings.ToUpper(string(own.Code)),
		domain:  ownDomain,
		message: own.Message,
		facts:   map[string]string{},
		retry:   own.RetryAfter,
	}
	if as := ownErrors[own.Code]; as != nil {
		known := failureOf(as)
		f.code, f.reason, f.domain = known.code, known.reason, known.domain
		f.status, f.grpc = known.status, known.grpc
	}
	if own.Code == picket.CodeTooLarge {
		f.status = http.StatusRequestEntityTooLarge
	}
	if f.status >= http.StatusInternalServerError && own.Code == picket.CodeInternal {
		return failureOf(errors.ErrUnsupported) // without what it says
	}
	if f.status == http.StatusServiceUnavailable {
		f.retry = max(f.retry, time.Second) // as everywhere else on this server
	}
	if own.Remedy != "" {
		f.facts["remedy"] = own.Remedy
	}
	if field, ok := own.Facts["field"].(string); ok {
		f.facts["field"] = field
	}
	return f
}

// grpcStatus names a status of HTTP as gRPC does.
func grpcStatus(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusTooManyRequests, http.StatusPaymentRequired:
		return "RESOURCE_EXHAUSTED"
	case http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	}
	if status >= http.StatusInternalServerError {
		return "INTERNAL"
	}
	return "FAILED_PRECONDITION"
}

// sentence is what an error of the protocol says. A wrapped error tells more than the sentinel alone.
func sentence(err error) string {
	var said *protocol.Error
	if errors.As(err, &said) && said.Message != "" {
		return said.Message
	}
	return err.Error()
}

// unsupported refuses something that is not possible in the state of a task.
func unsupported(message string) error {
	return protocol.NewError(protocol.ErrUnsupportedOperation, message)
}

// details are the error details of both bindings.
func (f failure) details() []any {
	info := map[string]any{"@type": errorInfoType, "reason": f.reason, "domain": f.domain}
	if len(f.facts) > 0 {
		info["metadata"] = f.facts
	}
	if after := f.retryAfter(); after > 0 {
		return []any{info, map[string]any{"@type": retryInfoType, "retryDelay": fmt.Sprintf("%ds", after)}}
	}
	return []any{info}
}

// retryAfter is in whole seconds, rounded up.
func (f failure) retryAfter() int { return int((f.retry + time.Second - 1) / time.Second) }

// setRetryAfter tells in the header when to send the request again.
func (f failure) setRetryAfter(h http.Header) {
	if after := f.retryAfter(); after > 0 {
		h.Set(echo.HeaderRetryAfter, strconv.Itoa(after))
	}
}

// body is the error as the HTTP+JSON binding tells it.
func (f failure) body() map[string]any {
	return map[string]any{"error": map[string]any{"code": f.status, "status": f.grpc, "message": f.message,
		"details": f.details()}}
}

// rpc is the error as the JSON-RPC binding tells it.
func (f failure) rpc() map[string]any {
	return map[string]any{"code": f.code, "message": f.message, "data": f.details()}
}
