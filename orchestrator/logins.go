package orchestrator

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
	"github.com/picket-dev/picket/orchestrator/store"
)

// BeginLogin checks a key and returns a one-time code for it, of the form
// <namespace>.<43 characters>. Within a minute [Engine.OpenLogin] turns the
// code into a login on the host name host, and on no other. from is the class
// of the address that asks (loopback, private, public), for the event log. A key
// that is not valid is CodeUnauthenticated.
func (e *Engine) BeginLogin(ctx context.Context, key picket.Secret,
	host, from string) (code picket.Secret, who picket.Principal, err error) {
	code = e.newSecret()
	r := e.run(ctx, "login_begin", hashForHost(host, code), hashKey(key.Reveal()), text.ValidHead(from, 32))
	who = e.principal(r.key())
	if r.Err != nil {
		return "", who, r.Err
	}
	return code, who, nil
}

// OpenLogin takes a code of [Engine.BeginLogin] and opens a login on its host
// name. The token, of the same form as the code, is shown only here: the store
// has hashes. A code that is unknown, expired, for another host name or used is
// CodeUnauthenticated. If it was used, the login that it opened ends, because
// two have the code. Beyond 20 logins of a key the oldest ends.
func (e *Engine) OpenLogin(ctx context.Context, code picket.Secret,
	host string) (token picket.Secret, s picket.Login, err error) {
	if ns, ok := LoginNamespace(code); !ok || ns != e.namespace {
		return "", s, badLoginCode()
	}
	token = e.newSecret()
	r := e.run(ctx, "session_open", hashForHost(host, token), hashForHost(host, code))
	s = r.login(e)
	switch {
	case r.Err != nil:
		return "", s, r.Err
	case s.OpenedAt == 0:
		return "", s, badLoginCode()
	}
	s.ExpiresAt = s.OpenedAt + picket.Instant(picket.LoginLifetime.Milliseconds())
	return token, s, nil
}

func (r *reply) login(e *Engine) picket.Login {
	var v struct {
		Opened int64   `reply:"opened"`
		Ends   int64   `reply:"ends"`
		Key    keyView `reply:"key"`
	}
	r.Decode(&v)
	return picket.Login{
		Principal: e.principal(v.Key.key()),
		OpenedAt:  picket.Instant(v.Opened),
		ExpiresAt: picket.Instant(v.Ends),
	}
}

func badLoginCode() error {
	return store.ParseRefusal(string(picket.CodeUnauthenticated) + " kind=code")
}

// Login returns the principal of a token on a host name. It asks the store
// every time, so a login or key that has ended is refused with
// CodeUnauthenticated from the next request on, in every process. The token is
// valid only on the host name on which the login was opened.
func (e *Engine) Login(ctx context.Context, token picket.Secret, host string) (picket.Login, error) {
	return e.login(ctx, token, host, "1")
}

// CheckLogin is [Engine.Login] for the automatic requests of an open page. They do not
// count as a use, because a page that nobody looks at would keep its login open.
func (e *Engine) CheckLogin(ctx context.Context, token picket.Secret, host string) (picket.Login, error) {
	return e.login(ctx, token, host, "0")
}

func (e *Engine) login(ctx context.Context, token picket.Secret, host, used string) (picket.Login, error) {
	if ns, ok := LoginNamespace(token); !ok || ns != e.namespace {
		return picket.Login{}, store.ParseRefusal(string(picket.CodeUnauthenticated) + " kind=session")
	}
	r := e.run(ctx, "session", hashForHost(host, token), used)
	return r.login(e), r.Err
}

// CloseLogin logs out. A login that has ended already is not an error.
func (e *Engine) CloseLogin(ctx context.Context, token picket.Secret, host string) error {
	if ns, ok := LoginNamespace(token); !ok || ns != e.namespace {
		return nil
	}
	return e.run(ctx, "session_close", hashForHost(host, token)).Err
}

// LoginNamespace returns the namespace of a login token or of a one-time
// code.
func LoginNamespace(token picket.Secret) (string, bool) {
	ns, random, found := strings.Cut(token.Reveal(), ".")
	return ns, found && len(random) == 43 && picket.CheckNamespace("namespace", ns) == nil
}

// newSecret is a new token or code of this namespace, with 256 random bits.
func (e *Engine) newSecret() picket.Secret {
	return picket.Secret(e.namespace + "." + base64.RawURLEncoding.EncodeToString(randomSecret()))
}

func randomSecret() []byte {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails: the program ends if the system has no randomness
	return random
}

// hashForHost is the hash under which the store has a token or a code of a host name.
// The name is part of the hash, so the store does not know it, and on another
// name the same secret is not found. There is nothing whose comparison could
// tell by its time how much of a guess was right.
func hashForHost(host string, secret picket.Secret) string {
	return hashKey(strings.ToLower(host) + "\x00" + secret.Reveal())
}

// principal is who a key speaks for.
func (e *Engine) principal(k picket.APIKey) picket.Principal {
	return picket.Principal{
		KeyID:     k.KeyID,
		Name:      k.Name,
		Namespace: e.namespace,
		Scopes:    k.Scopes,
		Parent:    k.ParentKeyID,
		AgentID:   k.AgentID,
		Client:    k.Client,
	}
}
