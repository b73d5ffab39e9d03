package api

import (
	"time"

	"github.com/picket-dev/picket"
)

// createKey answers the key itself, this once.
func createKey(c change[picket.KeyRequest]) (string, picket.NewKey, error) {
	if e := c.body.ExpiresAt; !e.IsZero() && !e.Time().After(time.Now()) {
		return "", picket.NewKey{}, picket.Invalid("/expiresAt",
			"Send a time in the future, or leave it out for a key without an end.", "expiresAt has passed already")
	}
	made, err := c.engine.CreateKey(c.ctx(), c.by, c.body)
	return made.KeyID, made, err
}

func revokeKey(c change[picket.KeyRevocation]) (picket.APIKey, error) {
	return c.engine.RevokeKeyWith(c.ctx(), c.by, c.id, c.body)
}
