package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// The meta record of a store contains the version of its format. Every script
// compares it with the newest format that it knows, FORMAT in lua/part/_prelude.lua,
// in the same step in which it would read or write. So a process of an earlier
// version stops as soon as a later version has raised the format.

// storeNewer is the error for a store that a later version has written. Its code
// is CodeUnavailable, so clients retry until another process can serve them.
func storeNewer(f facts) error {
	e := picket.Refuse(picket.CodeUnavailable,
		"Nothing was changed. Update picket on this machine to the version that wrote the store, or a later one.",
		"the store has format %s, and this version of picket knows formats up to %s", f["format"], f["known"])
	return e.With("storeFormat", ParseInt(f["format"])).With("knownFormat", ParseInt(f["known"])).
		WithCause(errStoreNewer)
}

// CheckFormat reports whether this build can work on the namespaces of a store.
// It writes nothing, and a namespace that does not exist yet is fine.
func CheckFormat(ctx context.Context, where redis.UniversalOptions, namespaces []string) error {
	scripts, err := newScripts(false)
	if err != nil {
		return fmt.Errorf("check the format: %w", err)
	}
	where.MaxRetries, where.DialerRetries, where.ContextTimeoutEnabled = -1, 1, true
	client := redis.NewUniversalClient(&where)
	defer client.Close()
	g := &scriptRunner{scripts: scripts}
	for _, ns := range namespaces {
		if _, err := g.through(client, ns)(ctx, "identify"); err != nil {
			return fmt.Errorf("check the format of namespace %s: %w", ns, err)
		}
	}
	return nil
}
