package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/store"
)

// CreateKey makes an API key. Its secret is shown only here; a repeat of the
// same request is shown the same one.
func (e *Engine) CreateKey(ctx context.Context, by picket.Caller, req picket.KeyRequest) (picket.NewKey, error) {
	if err := req.Normalize(); err != nil {
		return picket.NewKey{}, err
	}
	secret := e.newKey("api key", by)
	id, created, err := e.recordKey(ctx, by, secret, req)
	if err != nil {
		return picket.NewKey{}, err
	}
	if !created {
		if err := e.checkRepeatedKey(ctx, id, req); err != nil {
			return picket.NewKey{}, err
		}
	}
	return picket.NewKey{KeyID: id, Key: picket.Secret(secret)}, nil
}

// checkRepeatedKey refuses to show the key of an earlier request with the same Idempotency-Key
// if it was revoked or has other rights. The earlier request may have been forgotten.
func (e *Engine) checkRepeatedKey(ctx context.Context, id string, req picket.KeyRequest) error {
	k, err := e.Key(ctx, id)
	switch {
	case err != nil:
		return err
	case !k.RevokedAt.IsZero():
		return picket.Refuse(picket.CodeStateConflict, "Send a new Idempotency-Key to make a new key.",
			"the key that this request made was revoked")
	case !slices.Equal(k.Scopes, req.Scopes) || !reflect.DeepEqual(k.Client, req.Client) ||
		k.ExpiresAt != req.ExpiresAt:
		return picket.Refuse(picket.CodeStateConflict, "Send a new Idempotency-Key to make a new key.",
			"a request with this Idempotency-Key has made a key with other rights")
	}
	return nil
}

// newKey is a key of this namespace, with 256 random bits. A repeated request gets the
// same one.
func (e *Engine) newKey(kind string, by picket.Caller) string {
	random := randomSecret()
	if by.Idempotency.Key != "" {
		random = e.store.cfg.Sealer.Derive(kind + " " + by.Idempotency.Key)
	}
	return picket.KeyPrefix + e.namespace + "_" + base64.RawURLEncoding.EncodeToString(random)
}

// AdoptKey registers a key that exists already, such as the admin key of a
// data directory after an empty store; a known key is left as it is. A key with
// scope client needs limits, so it cannot be adopted.
func (e *Engine) AdoptKey(ctx context.Context, by picket.Caller, name string, key picket.Secret,
	scopes []picket.Scope) (picket.APIKey, error) {
	req := picket.KeyRequest{Name: name, Scopes: scopes}
	if err := req.Normalize(); err != nil {
		return picket.APIKey{}, err
	}
	if ns, ok := KeyNamespace(key); !ok || ns != e.namespace {
		return picket.APIKey{}, picket.Invalid("key", "Use a key made for namespace "+e.namespace+".",
			"the key does not belong to this namespace")
	}
	id, _, err := e.recordKey(ctx, by, key.Reveal(), req)
	if err != nil {
		return picket.APIKey{}, err
	}
	return e.Key(ctx, id)
}

func (e *Engine) recordKey(ctx context.Context, by picket.Caller, secret string,
	req picket.KeyRequest) (id string, created bool, err error) {
	scopes := make([]string, len(req.Scopes))
	for i, s := range req.Scopes {
		scopes[i] = string(s)
	}
	var client picket.ClientLimits
	if req.Client != nil {
		client = *req.Client
	}
	r := e.run(ctx, "key_create", "key_"+ulid.Make().String(), hashKey(secret), req.Name,
		strings.Join(scopes, ","), int64(req.ExpiresAt), by.Actor, by.Idempotency.Key, by.Idempotency.Body,
		strings.Join(client.Roles, ","), client.MaxOpen, client.RatePerMinute)
	var made struct {
		ID      string `reply:"id"`
		Created bool   `reply:"created"`
	}
	r.Decode(&made)
	return made.ID, made.Created, r.Err
}

// KeyNamespace reads the namespace out of an API key of the form
// pkk_<namespace>_<43 characters>.
func KeyNamespace(key picket.Secret) (string, bool) {
	rest, ok := strings.CutPrefix(key.Reveal(), picket.KeyPrefix)
	ns, random, found := strings.Cut(rest, "_")
	if !ok || !found || len(random) != 43 || picket.CheckNamespace("namespace", ns) != nil {
		return "", false
	}
	return ns, true
}

func hashKey(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Keys lists all keys, oldest first.
func (e *Engine) Keys(ctx context.Context) ([]picket.APIKey, error) {
	_, keys, err := e.keysBy(ctx, "all", "")
	return keys, err
}

// keysBy returns the keys that the script keys finds, and the server's own clock.
func (e *Engine) keysBy(ctx context.Context, by, value string) (raw int64, keys []picket.APIKey, err error) {
	r := e.run(ctx, "keys", by, value)
	var v struct {
		Raw  int64     `reply:"raw"`
		Keys []keyView `reply:"keys"`
	}
	r.Decode(&v)
	keys = make([]picket.APIKey, len(v.Keys))
	for i, k := range v.Keys {
		keys[i] = k.key()
	}
	return v.Raw, keys, r.Err
}

// keyView is what the script function key_view shows.
type keyView struct {
	ID     string            `reply:"id"`
	Record map[string]string `reply:"record"`
}

// key decodes a keyView.
func (r *reply) key() picket.APIKey {
	var v keyView
	r.Decode(&v)
	return v.key()
}

func (v keyView) key() picket.APIKey {
	h := v.Record
	k := picket.APIKey{
		KeyID:       v.ID,
		Name:        h["name"],
		CreatedAt:   picket.Instant(store.ParseInt(h["created"])),
		ExpiresAt:   picket.Instant(store.ParseInt(h["expires"])),
		RevokedAt:   picket.Instant(store.ParseInt(h["revoked"])),
		Leases:      picket.KeyLeases(h["leases"]),
		ParentKeyID: h["parent"],
		AgentID:     h["agent"],
	}
	for s := range strings.SplitSeq(h["scopes"], ",") {
		k.Scopes = append(k.Scopes, picket.Scope(s))
	}
	if slices.Contains(k.Scopes, picket.ScopeClient) {
		k.Client = clientLimits(h)
	}
	return k
}

// clientLimits decodes the limits of a client key. A record without them allows no role.
func clientLimits(h map[string]string) *picket.ClientLimits {
	l := &picket.ClientLimits{
		MaxOpen:       int(store.ParseInt(h["client_open"])),
		RatePerMinute: int(store.ParseInt(h["client_rate"])),
	}
	if roles := h["client_roles"]; roles != "" {
		l.Roles = strings.Split(roles, ",")
	}
	return l
}

// Key shows one key by its id.
func (e *Engine) Key(ctx context.Context, keyID string) (picket.APIKey, error) {
	if err := picket.CheckID("keyId", "key", keyID); err != nil {
		return picket.APIKey{}, err
	}
	_, k, err := e.findKey(ctx, "id", keyID)
	return k, err
}

func (e *Engine) findKey(ctx context.Context, by, value string) (raw int64, k picket.APIKey, err error) {
	raw, keys, err := e.keysBy(ctx, by, value)
	if err != nil || len(keys) == 0 { // the script refuses when it finds none
		return 0, picket.APIKey{}, err
	}
	return raw, keys[0], nil
}

// RevokeKey ends a key and its waiting requests at once, in every process. If the
// key has the scope agent, its leases are void from the same step on. The leases
// of any other key go on.
func (e *Engine) RevokeKey(ctx context.Context, by picket.Caller, keyID string) (picket.APIKey, error) {
	return e.RevokeKeyWith(ctx, by, keyID, picket.KeyRevocation{})
}

// RevokeKeyWith is RevokeKey with a choice of what happens to the leases. The
// leases of a key that is already revoked can still be ended, but not restored.
func (e *Engine) RevokeKeyWith(ctx context.Context, by picket.Caller, keyID string,
	how picket.KeyRevocation) (picket.APIKey, error) {
	leases := ""
	if how.KeepLeases != nil {
		leases = "end"
		if *how.KeepLeases {
			leases = "keep"
		}
	}
	r := e.runChecked(ctx, picket.CheckID("keyId", "key", keyID), "key_revoke", keyID, by.Actor, leases, sweepBatch)
	if r.Err == nil {
		e.keys.forgetAll() // its run keys have ended with it
	}
	return r.key(), r.Err
}

// Authenticate finds who an API key speaks for. Unknown, wrong, revoked and
// expired keys get the same answer.
func (e *Engine) Authenticate(ctx context.Context, key picket.Secret) (picket.Principal, error) {
	hash := hashKey(key.Reveal())
	p, asked, ok := e.keys.find(hash)
	if ok {
		return p, nil
	}
	raw, k, err := e.findKey(ctx, "hash", hash)
	if err != nil && picket.CodeOf(err) != picket.CodeNotFound {
		return picket.Principal{}, err
	}
	if err != nil || !k.RevokedAt.IsZero() || (!k.ExpiresAt.IsZero() && int64(k.ExpiresAt) <= raw) {
		return picket.Principal{},
			picket.Refuse(picket.CodeUnauthenticated, "Send a valid key as X-API-Key or as a bearer.",
				"the API key is not valid")
	}
	p = e.principal(k)
	life := keyCacheLife
	if !k.ExpiresAt.IsZero() {
		life = min(life, time.Duration(int64(k.ExpiresAt)-raw)*time.Millisecond)
	}
	e.keys.keep(hash, p, life, asked)
	return p, nil
}

// keyCacheLife is how long a process trusts a key without asking again; a
// revocation is heard at once.
const keyCacheLife = 5 * time.Second

// keyCache remembers valid keys by hash, at most 10,000 of them.
type keyCache struct {
	mu         sync.Mutex
	known      map[string]cachedKey
	generation uint64 // how often keys were forgotten
}

type cachedKey struct {
	who   picket.Principal
	until time.Time
}

func newKeyCache() *keyCache { return &keyCache{known: map[string]cachedKey{}} }

// forgetAll is for a store that may know other keys now.
func (c *keyCache) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	clear(c.known)
}

// find also returns the drops so far, which keep takes.
func (c *keyCache) find(hash string) (who picket.Principal, drops uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.known[hash]
	if !ok || time.Now().After(k.until) {
		delete(c.known, hash)
		return picket.Principal{}, c.generation, false
	}
	return k.who, c.generation, true
}

// keep remembers a key, unless any was forgotten since find returned drops: the
// key may have been revoked after the store was asked.
func (c *keyCache) keep(hash string, p picket.Principal, life time.Duration, drops uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != drops {
		return
	}
	if len(c.known) >= 10_000 {
		clear(c.known)
	}
	c.known[hash] = cachedKey{who: p, until: time.Now().Add(life)}
}

func (c *keyCache) forget(hash string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	delete(c.known, hash)
}

// handleMessage drops a key that another process has revoked, and all of them after a
// reconnect: messages may have been missed.
func (c *keyCache) handleMessage(message string) {
	if message == "" {
		c.forgetAll()
	}
	if hash, ok := strings.CutPrefix(message, "key "); ok {
		c.forget(hash)
	}
}

// CreateRunKey makes a key of scope agent for one agent id, for the adapter that
// a person starts. It belongs to the key by.Key: it is revoked with that key,
// and registrations made with it belong to that key. It expires after
// picket.RunKeyLifetime unless it is renewed. A repeated request returns the same
// secret.
func (e *Engine) CreateRunKey(ctx context.Context, by picket.Caller,
	req picket.RunKeyRequest) (picket.NewRunKey, error) {
	if err := req.Normalize(); err != nil {
		return picket.NewRunKey{}, err
	}
	secret := e.newKey("run key", by)
	r := e.run(ctx, "run_key_create", "key_"+ulid.Make().String(), hashKey(secret), "run key of "+req.AgentID,
		by.Key, req.AgentID,
		picket.RunKeyLifetime.Milliseconds(), picket.MaxRunKeys, by.Idempotency.Key, by.Idempotency.Body)
	id := r.Text(r.Value)
	if r.Err != nil {
		return picket.NewRunKey{}, r.Err
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

// RenewRunKey extends a run key to picket.RunKeyLifetime from now, but never beyond the
// expiry of the key that made it.
func (e *Engine) RenewRunKey(ctx context.Context, keyID string) (picket.APIKey, error) {
	r := e.run(ctx, "run_key_renew", keyID, picket.RunKeyLifetime.Milliseconds())
	return r.key(), r.Err
}

// EndRunKey ends a run key that is no longer needed. Leases that were acquired
// with it go on. Ending it again is not an error.
func (e *Engine) EndRunKey(ctx context.Context, keyID string) error {
	return e.run(ctx, "run_key_renew", keyID, 0).Err
}

// KeyContext returns a context for requests of the key that wait or stream. It ends when the key is
// revoked or expires, with the cause CodeUnauthenticated. Every server process is notified of a
// revocation at once, and looks for an expiry when it is due and at least once a minute.
// Call stop to release the resources of the context.
func (e *Engine) KeyContext(ctx context.Context, keyID string) (held context.Context, stop func()) {
	held, cancel := context.WithCancelCause(ctx)
	revoked := e.records.Subscribe(revokedTopic(keyID))
	done := make(chan struct{})
	go func() {
		defer close(done)
		end, err := e.records.WaitUntil(held, revoked, store.NoLimit, func() (bool, time.Duration, error) {
			// The key may have been revoked before the subscription, and a message
			// can also mean that messages were missed. A store that does not answer
			// says nothing about the key.
			over, again, err := e.keyIsOver(held, keyID)
			if err != nil {
				return false, time.Second, nil
			}
			return over, again, nil
		})
		if err == nil && end == store.WaitDone {
			cancel(store.ParseRefusal(string(picket.CodeUnauthenticated) + " kind=key"))
		}
	}()
	return held, func() {
		cancel(nil)
		<-done
	}
}

// expiryLook is how long at most nobody looks whether a key with an end has expired: clocks can jump.
const expiryLook = time.Minute

// keyIsOver reports whether a key is revoked or has expired. again is when to look at one that expires.
func (e *Engine) keyIsOver(ctx context.Context, keyID string) (over bool, again time.Duration, err error) {
	raw, k, err := e.findKey(ctx, "id", keyID)
	switch {
	case picket.CodeOf(err) == picket.CodeNotFound:
		return true, 0, nil
	case err != nil || !k.RevokedAt.IsZero():
		return err == nil, 0, err
	case k.ExpiresAt.IsZero():
		return false, 0, nil
	}
	left := time.Duration(int64(k.ExpiresAt)-raw) * time.Millisecond
	return left <= 0, max(time.Millisecond, min(left, expiryLook)), nil
}
