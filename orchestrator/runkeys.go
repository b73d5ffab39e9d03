package orchestrator

import (
	"context"
	"crypto/rand"
	"encoding/base64"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
)

// CreateRunKey makes a key of scope agent for one agent id, for the adapter that
// a person starts. It belongs to the key by.Key: it is revoked with that key,
// and registrations made with it belong to that key. It expires after
// picket.RunKeyLife unless it is renewed. A repeated request returns the same
// secret.
func (e *Engine) CreateRunKey(ctx context.Context, by picket.Caller,
	req picket.RunKeyRequest) (picket.NewRunKey, error) {
	if err := req.Normalize(); err != nil {
		return picket.NewRunKey{}, err
	}
	random := make([]byte, 32)
	if by.Idempotency.Key != "" {
		random = e.store.cfg.Sealer.Derive("run key " + by.Idempotency.Key)
	} else if _, err := rand.Read(random); err != nil {
		return picket.NewRunKey{}, err
	}
	secret := picket.KeyPrefix + e.namespace + "_" + base64.RawURLEncoding.EncodeToString(random)
	got, err := e.run(ctx, "run_key_create", "key_"+ulid.Make().String(), hashKey(secret), "run key of "+req.AgentID,
		by.Key, req.AgentID,
		picket.RunKeyLifetime.Milliseconds(), picket.MaxRunKeys, by.Idempotency.Key, by.Idempotency.Body)
	if err != nil {
		return picket.NewRunKey{}, err
	}
	r := &reply{script: "run_key_create"}
	id := r.text(r.at(r.list(got), 0))
	if r.err != nil {
		return picket.NewRunKey{}, r.err
	}
	k, err := e.Key(ctx, id)
	if err != nil {
		return picket.NewRunKey{}, err
	}
	if !k.RevokedAt.IsZero() {
		return picket.NewRunKey{},
			picket.Refuse(picket.CodeStateConflict, "Send a new Idempotency-Key to make a new key.",
				"the run key that this request made was revoked")
	}
	return picket.NewRunKey{KeyID: id, Key: picket.Secret(secret), AgentID: k.AgentID, ExpiresAt: k.ExpiresAt}, nil
}

// RenewRunKey extends a run key to picket.RunKeyLife from now, but never beyond the
// expiry of the key that made it.
func (e *Engine) RenewRunKey(ctx context.Context, keyID string) (picket.APIKey, error) {
	got, err := e.run(ctx, "run_key_renew", keyID, picket.RunKeyLifetime.Milliseconds())
	if err != nil {
		return picket.APIKey{}, err
	}
	r := &reply{script: "run_key_renew"}
	return r.key(got), r.err
}

// EndRunKey ends a run key that is no longer needed. Leases that were acquired
// with it go on. Ending it again is not an error.
func (e *Engine) EndRunKey(ctx context.Context, keyID string) error {
	_, err := e.run(ctx, "run_key_renew", keyID, 0)
	return err
}
