package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// createKey answers the key itself, this once.
func createKey(r request) error {
	_, body, by, err := decodeMutation[picket.KeyRequest](r, "", "")
	if err != nil {
		return err
	}
	if err := checkKey(body); err != nil {
		return err
	}
	made, err := r.engine.CreateKey(r.ctx(), by, body)
	if err != nil {
		return err
	}
	r.Response().Header().Set(echo.HeaderLocation, "/api/v1/keys/"+made.KeyID)
	return web.JSON(r.Context, http.StatusCreated, made)
}

func checkKey(k picket.KeyRequest) error {
	if e := k.ExpiresAt; !e.IsZero() && !e.Time().After(time.Now()) {
		return picket.Invalid("/expiresAt", "Send a time in the future, or leave it out for a key without an end.",
			"expiresAt has passed already")
	}
	if strings.TrimSpace(k.Name) == "" || len(k.Name) > 128 {
		return picket.Invalid("/name", "Say in 1 to 128 bytes who or what uses the key.",
			"name is required and has at most 128 bytes")
	}
	if len(k.Scopes) == 0 {
		return picket.Invalid("/scopes", `Send for example {"scopes":["agent"]}.`, "a key needs at least one scope")
	}
	for i, s := range k.Scopes {
		if !slices.Contains(picket.Scopes, s) {
			return picket.Invalid("/scopes/"+strconv.Itoa(i), "Send one of: agent, reviewer, operator, admin.",
				"%.64q is not a scope", s)
		}
	}
	return nil
}

type keyList struct {
	Keys []picket.APIKey `json:"keys"`
}

func listKeys(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	keys, err := r.engine.Keys(r.ctx())
	return r.respond(keyList{keys}, err)
}

func getKey(r request) error { return answerOne(r, "id", "key", r.engine.Key) }

func revokeKey(r request) error {
	id, how, by, err := decodeMutation[picket.KeyRevocation](r, "id", "key")
	if err != nil {
		return err
	}
	key, err := r.engine.RevokeKeyWith(r.ctx(), by, id, how)
	return r.respond(key, err)
}
