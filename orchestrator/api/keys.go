package api

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// createKey answers the key itself, this once.
func createKey(c change[picket.KeyRequest]) (string, picket.NewKey, error) {
	if err := checkKey(c.body); err != nil {
		return "", picket.NewKey{}, err
	}
	made, err := c.engine.CreateKey(c.ctx(), c.by, c.body)
	return made.KeyID, made, err
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

func revokeKey(c change[picket.KeyRevocation]) (picket.APIKey, error) {
	return c.engine.RevokeKeyWith(c.ctx(), c.by, c.id, c.body)
}
