package kit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/store"
)

// ForgetWaiter forgets a waiter, as Acquire does when its client goes away.
func ForgetWaiter(ctx context.Context, e *orchestrator.Engine, waiter string) {
	_, _ = e.Records().Run(ctx, "unwait", waiter)
}

// JudgeOne judges one agent, due or not.
func JudgeOne(ctx context.Context, e *orchestrator.Engine, id string) error {
	_, err := e.Records().Run(ctx, "judge", id, 1)
	return err
}

// BeginLoginAs begins a login with a code of the caller's, as a repeated request
// does.
func BeginLoginAs(ctx context.Context, e *orchestrator.Engine, code, key picket.Secret, host string) error {
	_, err := e.Records().Run(ctx, "login_begin", hashForHost(host, code), hash(key.Reveal()), "loopback")
	return err
}

// OpenLoginAs opens a login with a token of the caller's, as a repeated request
// does.
func OpenLoginAs(ctx context.Context, e *orchestrator.Engine, token, code picket.Secret, host string) error {
	got, err := e.Records().Run(ctx, "session_open", hashForHost(host, token), hashForHost(host, code))
	if r := store.NewReply("session_open", got); err == nil && len(r.Hash(r.Value)) == 0 {
		err = errors.New("the code opens no login")
	}
	return err
}

// hashForHost is under what the store has a code or a token of a host name.
func hashForHost(host string, secret picket.Secret) string {
	return hash(strings.ToLower(host) + "\x00" + secret.Reveal())
}

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
