package kit

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Format is the format that this build stores.
const Format = 2

// asHash makes a hash of a record that is a string. A store in memory has no cmsgpack.
const asHash = `
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return end
local found, library = pcall(function() return cmsgpack end)
local unpacked = (found and library or { unpack = cjson.decode }).unpack(redis.call('GET', KEYS[1]))
redis.call('DEL', KEYS[1])
for field, value in pairs(unpacked) do redis.call('HSET', KEYS[1], field, value) end
`

// ToFormat1 makes a namespace one that an earlier version has written. It returns how many records there are.
func ToFormat1(ctx context.Context, c redis.UniversalClient, namespace string) (records int, err error) {
	prefix := "pk:{" + namespace + "}:"
	keys := c.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if !rig.IsRecord(keys.Val()) {
			continue
		}
		records++
		if err := c.Eval(ctx, asHash, []string{keys.Val()}).Err(); err != nil && err != redis.Nil {
			return records, err
		}
	}
	if err := keys.Err(); err != nil {
		return records, err
	}
	return records, c.HSet(ctx, prefix+"meta", "format", 1).Err()
}

// Migrate makes one step of the conversion to the format of this build. It looks at so many keys, and converts so
// many records at most.
func Migrate(ctx context.Context, e *orchestrator.Engine, keys, records int) (done bool, err error) {
	got, err := e.Records().RunUnchecked(ctx, "migrate", keys, records)
	if err != nil {
		return false, err
	}
	r := store.NewReply("migrate", got)
	return r.Hash(r.Value)["done"] == "1", r.Err
}

// RefusedAsMigrating checks that a call is refused because the store is being converted.
func RefusedAsMigrating(t *testing.T, err error) {
	t.Helper()
	Refused(t, err, picket.CodeUnavailable)
	no, known := picket.RefusalOf(err)
	if !known || no.Facts["knownFormat"] != int64(Format) || no.RetryAfter <= 0 || no.Remedy == "" {
		t.Errorf("the refusal is %+v", no)
	}
}
