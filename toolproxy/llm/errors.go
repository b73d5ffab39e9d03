package llm

import (
	"errors"

	"github.com/picket-dev/picket"
)

// refusalOf returns the refusal that reports err to an agent.
func refusalOf(err error) *picket.Error {
	if refusal, ok := errors.AsType[*picket.Error](err); ok {
		return refusal
	}
	return picket.Refuse(picket.CodeInternal, "Try again; tell an operator if it stays.",
		"the call could not be passed on").WithCause(err)
}

// errorMessage puts the code, the message and the remedy into one text, because
// many programs show only the message of an error.
func errorMessage(e *picket.Error) string {
	return string(e.Code) + ": " + e.Message + ". " + e.Remedy
}

// withFacts adds the code, the remedy and the facts of a refusal to the members
// of a vendor's error.
func withFacts(members map[string]any, e *picket.Error) map[string]any {
	for name, value := range e.Facts {
		if _, taken := members[name]; !taken {
			members[name] = value
		}
	}
	members["code"], members["remedy"] = e.Code, e.Remedy
	return members
}

func anthropicError(e *picket.Error) any {
	kind := map[int]string{
		400: "invalid_request_error",
		401: "authentication_error",
		402: "billing_error",
		403: "permission_error",
		404: "not_found_error",
		413: "request_too_large",
		429: "rate_limit_error",
		503: "overloaded_error",
		504: "timeout_error",
	}[e.Code.Status()]
	if kind == "" {
		kind = "invalid_request_error"
		if e.Code.Status() >= 500 {
			kind = "api_error"
		}
	}
	return map[string]any{
		"type":  "error",
		"error": withFacts(map[string]any{"type": kind, "message": errorMessage(e)}, e),
	}
}

func openAIError(e *picket.Error) any {
	kind := "invalid_request_error"
	switch status := e.Code.Status(); {
	case e.Code == picket.CodeBudgetExceeded:
		kind = "insufficient_quota"
	case status == 429:
		kind = "rate_limit_error"
	case status >= 500:
		kind = "server_error"
	}
	return map[string]any{"error": withFacts(map[string]any{"type": kind, "message": errorMessage(e), "param": nil}, e)}
}
