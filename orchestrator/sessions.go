package orchestrator

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/picket-dev/picket"
)

// OpenSession logs in with a key. The token, <namespace>.<43 characters>, is
// shown only here; the store has its hash. from is the class of the address that
// it is asked from (loopback, private, public), for the log. A key that is not
// valid is CodeUnauthenticated; beyond 20 sessions of a key the oldest ends.
func (e *Engine) OpenSession(ctx context.Context, key picket.Secret, from string) (token picket.Secret, s picket.Session, err error) {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return "", s, err
	}
	token = picket.Secret(e.namespace + "." + base64.RawURLEncoding.EncodeToString(random))
	if s, err = e.openSession(ctx, token, key, from); err != nil {
		return "", s, err
	}
	return token, s, nil
}

func (e *Engine) openSession(ctx context.Context, token, key picket.Secret, from string) (picket.Session, error) {
	got, err := e.run(ctx, "session_open", hashKey(token.Reveal()), hashKey(key.Reveal()), beginning(from, 32))
	if err != nil {
		return picket.Session{}, err
	}
	r := &reply{script: "session_open"}
	l := r.list(got)
	at := picket.Instant(r.int(r.at(l, 0)))
	return picket.Session{Principal: e.principal(r.key(r.at(l, 1))), OpenedAt: at, ExpiresAt: at + picket.Instant(picket.SessionLife.Milliseconds())}, r.bad
}

// Session tells whom a token speaks for. The store is asked every time, so what
// ends a session, or its key, counts from the next request on, in every process:
// CodeUnauthenticated.
func (e *Engine) Session(ctx context.Context, token picket.Secret) (picket.Session, error) {
	return e.session(ctx, token, "1")
}

// SessionHolds is Session for what an open page asks by itself: it does not
// count as a use, or a page that nobody looks at would keep its session open.
func (e *Engine) SessionHolds(ctx context.Context, token picket.Secret) (picket.Session, error) {
	return e.session(ctx, token, "0")
}

func (e *Engine) session(ctx context.Context, token picket.Secret, used string) (picket.Session, error) {
	if ns, ok := SessionNamespace(token); !ok || ns != e.namespace {
		return picket.Session{}, explainRefusal(string(picket.CodeUnauthenticated) + " kind=session")
	}
	got, err := e.run(ctx, "session", hashKey(token.Reveal()), used)
	if err != nil {
		return picket.Session{}, err
	}
	r := &reply{script: "session"}
	l := r.list(got)
	s := picket.Session{Principal: e.principal(r.key(r.at(l, 2))), OpenedAt: picket.Instant(r.int(r.at(l, 0))), ExpiresAt: picket.Instant(r.int(r.at(l, 1)))}
	return s, r.bad
}

// CloseSession logs out. A session that is over already is no error.
func (e *Engine) CloseSession(ctx context.Context, token picket.Secret) error {
	if ns, ok := SessionNamespace(token); !ok || ns != e.namespace {
		return nil
	}
	_, err := e.run(ctx, "session_close", hashKey(token.Reveal()))
	return err
}

// SessionNamespace reads the namespace out of a token of a session, which says
// whose engine knows it.
func SessionNamespace(token picket.Secret) (string, bool) {
	ns, random, found := strings.Cut(token.Reveal(), ".")
	return ns, found && len(random) == 43 && picket.CheckNamespace("namespace", ns) == nil
}

// principal is who a key speaks for.
func (e *Engine) principal(k picket.APIKey) picket.Principal {
	return picket.Principal{KeyID: k.KeyID, Name: k.Name, Namespace: e.namespace, Scopes: k.Scopes}
}
