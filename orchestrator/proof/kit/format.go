package kit

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Format is the format that this build stores.
const Format = 3

// eachRecord does something with each record that is a string: there are its key and its fields. It sets the format,
// and returns how many records there are.
const eachRecord = `
local prefix, cursor, records = string.sub(KEYS[1], 1, -5), '0', 0
repeat
  local got = redis.call('SCAN', cursor, 'MATCH', prefix .. '*', 'COUNT', 1000, 'TYPE', 'string')
  for _, key in ipairs(got[2]) do
    local kind = string.match(string.sub(key, #prefix + 1), '^(%a+):')
    if names[kind] and redis.call('TYPE', key).ok == 'string' then
      local fields = fields_of(kind, redis.call('GET', key))
      @change@
      records = records + 1
    end
  end
  cursor = got[1]
until cursor == '0'
redis.call('HSET', KEYS[1], 'format', ARGV[1])
return records
`

// ToFormat1 makes a namespace one that a version with format 1 has written: its records are hashes. It returns how many
// there are.
func ToFormat1(ctx context.Context, c redis.UniversalClient, namespace string) (records int, err error) {
	return toFormat(ctx, c, namespace, 1, `
      redis.call('DEL', key)
      for field, value in pairs(fields) do redis.call('HSET', key, field, value) end`)
}

// ToFormat2 makes a namespace one that a version with format 2 has written: its records are strings that name all their
// fields. It returns how many there are.
func ToFormat2(ctx context.Context, c redis.UniversalClient, namespace string) (records int, err error) {
	return toFormat(ctx, c, namespace, 2, `redis.call('SET', key, packer.pack(fields), 'KEEPTTL')`)
}

func toFormat(ctx context.Context, c redis.UniversalClient, namespace string, format int, change string) (int, error) {
	script := rig.RecordReader + strings.Replace(eachRecord, "@change@", change, 1)
	return c.Eval(ctx, script, []string{store.MetaKey(namespace)}, format).Int()
}

// StringFormat is the format of the string of a record: 2 or 3.
func StringFormat(ctx context.Context, c redis.UniversalClient, key string) (int, error) {
	const script = `
local values = { packer.unpack(redis.call('GET', KEYS[1])) }
if #values == 1 then values = values[1] end
return values[1] == nil and 2 or 3`
	return c.Eval(ctx, rig.RecordReader+script, []string{key}).Int()
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
