package kit

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/store"
)

// WitnessFile is the file of the default namespace in a directory of witnesses.
func WitnessFile(dir string) string {
	paths, err := filepath.Glob(filepath.Join(dir, "default@*.json"))
	if err != nil || len(paths) != 1 {
		return filepath.Join(dir, "none")
	}
	return paths[0]
}

// OpenProcess opens another process on the store of a fixture. It has the planted bug, too, if there is one.
func (f *Fixture) OpenProcess(t *testing.T, s rig.Store, cfg orchestrator.Config) *orchestrator.Store {
	t.Helper()
	cfg.Redis, cfg.Memory, cfg.Sealer, cfg.Log = s.Redis, s.Memory, f.Sealer, slog.New(slog.DiscardHandler)
	store, err := orchestrator.Open(f.Ctx, cfg)
	OK(t, err)
	t.Cleanup(func() { _ = store.Close() })
	plantFromEnv(t, store)
	return store
}

func CountEventsOf(t *testing.T, f *Fixture, kind string) int {
	t.Helper()
	page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{kind}, Limit: 1000})
	OK(t, err)
	return len(page.Events)
}

func (f *Fixture) MustRenew(t *testing.T, l picket.Lease) picket.Renewal {
	t.Helper()
	r, err := f.Renew(f.Ctx, f.OpenLease(t, l))
	OK(t, err)
	return r
}

func (f *Fixture) SetFormat(t *testing.T, format int) {
	t.Helper()
	OK(t, f.Raw.HSet(f.Ctx, Meta, "format", format).Err())
}

func RefusedAsNewer(t *testing.T, err error) {
	t.Helper()
	Refused(t, err, picket.CodeUnavailable)
	if text := err.Error(); !strings.Contains(text,
		fmt.Sprint("the store has format 7, and this version of picket knows formats up to ", Format)) {
		t.Errorf("the error says %q", text)
	}
}

// EnsureAdopted makes sure that a store is the one this process knows, as a new
// connection does.
func EnsureAdopted(ctx context.Context, e *orchestrator.Engine) error { return e.Records().Check(ctx) }

// InitNamespace makes the record of a namespace that nobody ever knew.
func InitNamespace(ctx context.Context, e *orchestrator.Engine) error {
	seen, err := identify(ctx, e)
	if err == nil {
		_, err = e.Records().RunUnchecked(ctx, "adopt", seen["server"], "", "", "", "store_anew", 0, 0)
	}
	return err
}

// AdoptUnseen tries to adopt a store by what nobody saw.
func AdoptUnseen(ctx context.Context, e *orchestrator.Engine) error {
	_, err := e.Records().RunUnchecked(ctx, "adopt", "nobody", "", "", "", "store_unseen", 1<<40, 1<<40)
	return err
}

// MarkStop takes a store out of service under a mark, as its owner does when it stops. The owner
// knows of so many grants.
func MarkStop(ctx context.Context, e *orchestrator.Engine, floor, grants int64, mark string) error {
	seen, err := identify(ctx, e)
	if err != nil {
		return err
	}
	_, err = e.Records().RunUnchecked(ctx, "mark_stop", seen["store"], floor, mark, grants)
	return err
}

// TakeMark puts a store into service that was stopped under a mark, as its owner does when
// it starts.
func TakeMark(ctx context.Context, e *orchestrator.Engine, floor int64, mark string) error {
	seen, err := identify(ctx, e)
	if err != nil {
		return err
	}
	_, err = e.Records().RunUnchecked(ctx, "take_mark", seen["server"], seen["store"], floor, mark)
	return err
}

func identify(ctx context.Context, e *orchestrator.Engine) (map[string]string, error) {
	got, err := e.Records().RunUnchecked(ctx, "identify")
	if err != nil {
		return nil, err
	}
	r := store.NewReply("identify", got)
	return r.Hash(r.Value), r.Err
}
