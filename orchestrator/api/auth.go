package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

const apiKeyHeader = "X-API-Key"

// authenticate finds the principal of the key, and the engine that the key selects.
// Unknown, wrong, revoked and expired keys, and keys of a namespace that is not
// served here, get the same answer.
func (a *API) authenticate(r *http.Request) (*orchestrator.Engine, picket.Principal, error) {
	none := picket.Principal{}
	key := presentedKey(r)
	switch {
	case key == "":
		return nil, none, picket.Refuse(picket.CodeUnauthenticated,
			"Send the key as X-API-Key, or as Authorization: Bearer.", "an API key is needed")
	case strings.HasPrefix(key, picket.LeaseTokenPrefix):
		return nil, none, picket.Refuse(picket.CodeUnauthenticated,
			"A lease token opens the tool proxy only (/v1/tools, /v1/lease, /v1/run). Send an API key here, or use the tools.",
			"a lease token is not an API key")
	case strings.HasPrefix(key, picket.SessionCapabilityPrefix):
		return nil, none, picket.Refuse(picket.CodeUnauthenticated,
			"A session capability opens the tool proxy only. "+
				"Use get_context, read_messages, send_message, next_task and the models below /llm.",
			"a session capability is not an API key")
	}
	engine := a.engineOf(key)
	if engine == nil {
		return nil, none, badKey()
	}
	who, err := engine.Authenticate(r.Context(), picket.Secret(key))
	if errors.Is(err, picket.CodeUnauthenticated) {
		return nil, none, badKey()
	}
	return engine, who, err
}

func badKey() error {
	return picket.Refuse(picket.CodeUnauthenticated,
		"Check the key, or make a new one with: picket key create", "the API key is not valid")
}

// presentedKey prefers X-API-Key; a scheme other than Bearer is not a key.
func presentedKey(r *http.Request) string {
	if key := r.Header.Get(apiKeyHeader); key != "" {
		return key
	}
	scheme, key, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}

// engineOf finds the engine of the namespace that the key names.
func (a *API) engineOf(key string) *orchestrator.Engine {
	namespace, ok := picket.KeyNamespace(key)
	if !ok {
		return nil
	}
	return a.cfg.Engine(namespace)
}
