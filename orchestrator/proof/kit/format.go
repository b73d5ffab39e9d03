package kit

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Format is the format that this build stores.
const Format = 2

// asFormat1 makes hashes of all records, and returns how many there are. A store in memory has no cmsgpack.
const asFormat1 = `
local found, library = pcall(function() return cmsgpack end)
local unpacked = (found and library or { unpack = cjson.decode }).unpack
local prefix, cursor, records = string.sub(KEYS[1], 1, -5), '0', 0
repeat
  local got = redis.call('SCAN', cursor, 'MATCH', prefix .. '*', 'COUNT', 1000, 'TYPE', 'string')
  for _, key in ipairs(got[2]) do
    local kind = string.match(string.sub(key, #prefix + 1), '^%a+:')
    if (kind == 'task:' or kind == 'run:' or kind == 'env:') and redis.call('TYPE', key).ok == 'string' then
      local fields = unpacked(redis.call('GET', key))
      redis.call('DEL', key)
      for field, value in pairs(fields) do redis.call('HSET', key, field, value) end
      records = records + 1
    end
  end
  cursor = got[1]
until cursor == '0'
redis.call('HSET', KEYS[1], 'format', 1)
return records
`

// ToFormat1 makes a namespace one that an earlier version has written. It returns how many records there are.
func ToFormat1(ctx context.Context, c redis.UniversalClient, namespace string) (records int, err error) {
	return c.Eval(ctx, asFormat1, []string{store.MetaKey(namespace)}).Int()
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
