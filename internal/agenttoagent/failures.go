package agenttoagent

import "fmt"

// kind is an error that the specification names, as both bindings have it.
type kind struct {
	name   string
	code   int    // of JSON-RPC
	status int    // of HTTP
	reason string // of the detail ErrorInfo; empty: the error is not one of A2A's own
}

// The errors of section 5.4, and those of section 9.5.
var (
	taskNotFound   = kind{"TaskNotFoundError", -32001, 404, "TASK_NOT_FOUND"}
	notCancelable  = kind{"TaskNotCancelableError", -32002, 400, "TASK_NOT_CANCELABLE"}
	noPush         = kind{"PushNotificationNotSupportedError", -32003, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"}
	unsupported    = kind{"UnsupportedOperationError", -32004, 400, "UNSUPPORTED_OPERATION"}
	contentType    = kind{"ContentTypeNotSupportedError", -32005, 400, "CONTENT_TYPE_NOT_SUPPORTED"}
	noExtension    = kind{"ExtensionSupportRequiredError", -32008, 400, "EXTENSION_SUPPORT_REQUIRED"}
	wrongVersion   = kind{"VersionNotSupportedError", -32009, 400, "VERSION_NOT_SUPPORTED"}
	parseError     = kind{"JSONParseError", -32700, 400, ""}
	invalidRequest = kind{"InvalidRequestError", -32600, 400, ""}
	noMethod       = kind{"MethodNotFoundError", -32601, 404, ""}
	invalidParams  = kind{"InvalidParamsError", -32602, 400, ""}
)

// is reports whether a failure is of a kind. With HTTP+JSON the status must be that of the kind, and a reason too, if
// the failure has one.
func (k kind) is(f *failure) bool {
	if f.code != 0 {
		return f.code == k.code
	}
	reason := f.info("reason")
	return f.status == k.status && (k.reason == "" || reason == "" || reason == k.reason)
}

// refused expects a failure of a kind.
func (c caller) refused(r *reply, k kind) *failure {
	c.Assert(r.Err == nil && r.failed != nil && k.is(r.failed), r.answer, "%s: code %d with JSON-RPC, or status %d and "+
		"reason %s with HTTP", k.name, k.code, k.status, k.reason)
	return r.failed
}

// refuses does an operation, and expects a failure of a kind.
func (c caller) refuses(operation string, params fields, k kind) *failure {
	return c.refused(c.do(operation, params), k)
}

// anyRefusal expects a failure of any kind.
func (c caller) anyRefusal(r *reply, what string) *failure {
	c.Assert(r.Err == nil && r.failed != nil, r.answer, "%s is refused", what)
	return r.failed
}

// unauthorized expects that a request is refused because of its key: with status 401 or 403, or with an error of
// JSON-RPC.
func (c caller) unauthorized(r *reply, what string) {
	c.Assert(r.Err == nil && r.result == nil && (r.Status == 401 || r.Status == 403 || r.failed.code != 0), r.answer,
		"%s is refused, with status 401 or an error", what)
}

func (k kind) String() string { return fmt.Sprintf("%s (%d, HTTP %d)", k.name, k.code, k.status) }
