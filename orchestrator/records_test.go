package orchestrator_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/lua"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// recordsVerb does something with records. ARGV has what it does, and for each record its key, the number of names and
// values, and these.
const recordsVerb = `-- flags: allow-oom
-- alone
local does, at, replies = ARGV[1], 2, {}
while at < #ARGV do
  local key, last = ARGV[at], at + 1 + num(ARGV[at + 1])
  if does == 'load' then
    local r, flat = load(key), call('HGETALL', key)
    for i = 1, #flat, 2 do assert(r[flat[i]] == flat[i + 1] and call('HGET', key, flat[i]) == flat[i + 1], flat[i]) end
    replies[#replies + 1] = flat
  elseif does == 'put' then
    local r = pick(key)
    for i = at + 2, last, 2 do put(r, ARGV[i], ARGV[i + 1]) end
  else
    local fields = {}
    for i = at + 2, last, 2 do fields[ARGV[i]] = ARGV[i + 1] end
    new_record(key, fields)
  end
  at = last + 1
end
return replies`

// recordsTest has a store with recordsVerb.
type recordsTest struct {
	*fixture
	t *testing.T
}

// do calls the verb with a record for each key.
func (r recordsTest) do(does string, records map[string]map[string]string) (replies []any) {
	r.t.Helper()
	keys := slices.Sorted(maps.Keys(records))
	for some := range slices.Chunk(keys, 50) {
		args := []any{does}
		for _, key := range some {
			args = append(args, key, 2*len(records[key]))
			for name, value := range records[key] {
				args = append(args, name, value)
			}
		}
		got, err := r.Records().Run(r.Ctx, "totals", args...)
		kit.OK(r.t, err)
		replies = append(replies, got.([]any)...)
	}
	return replies
}

// want checks that the store and a verb have the fields of each record.
func (r recordsTest) want(when string, records map[string]map[string]string) {
	r.t.Helper()
	loaded := r.do("load", records)
	for i, key := range slices.Sorted(maps.Keys(records)) {
		got, err := rig.ReadRecord(r.Ctx, r.Raw, key)
		if kit.OK(r.t, err); !maps.Equal(got, records[key]) {
			r.t.Errorf("%s, %s has %s, want %s", when, key, short(got), short(records[key]))
		}
		flat, fields := loaded[i].([]any), map[string]string{}
		for j := 0; j < len(flat); j += 2 {
			fields[flat[j].(string)] = flat[j+1].(string)
		}
		if len(flat) != 2*len(records[key]) || !maps.Equal(fields, records[key]) {
			r.t.Errorf("%s, a verb reads %s from %s, want %s", when, short(fields), key, short(records[key]))
		}
	}
}

func short(fields map[string]string) string {
	out := make(map[string]string, len(fields))
	for name, value := range fields {
		out[name] = value[:min(len(value), 20)]
	}
	return fmt.Sprintf("%q", out)
}

// change lets the verb change one field of each record.
func (r recordsTest) change(records map[string]map[string]string, name, value string) {
	r.t.Helper()
	one := map[string]map[string]string{}
	for key := range records {
		one[key] = map[string]string{name: value}
		records[key][name] = value
	}
	r.do("put", one)
}

// recordValues are values that a packer could mistake. Fields have the first three alone, too.
var recordValues = []string{"a\x00b\x00", "", strings.Repeat("0123456789", 7000), "false"}

// recordsOfKind are records of one kind: with each field alone, with all, with those that come first, and with none.
func recordsOfKind(kind lua.Record) map[string]map[string]string {
	records := map[string]map[string]string{}
	add := func(name, value string, fields ...string) {
		r := map[string]string{}
		for _, f := range fields {
			r[f] = value
		}
		records[fmt.Sprintf("pk:{default}:%s:%s", kind.Kind, name)] = r
	}
	all := slices.Concat(kind.Fields, kind.Others, []string{oddField})
	for i, value := range recordValues {
		if i < 3 {
			for _, field := range all {
				add(fmt.Sprint(field, "-", i), value, field)
			}
		}
		add(fmt.Sprint("all-", i), value, all...)
		add(fmt.Sprint("first-", i), value, kind.Fields...)
	}
	add("none", "")
	return records
}

// store writes records past the verbs, as strings of format 2.
func (r recordsTest) store(ctx context.Context, records map[string]map[string]string) {
	r.t.Helper()
	for key, fields := range records {
		flat := []any{oddField, ""}
		for name, value := range fields {
			flat = append(flat, name, value)
		}
		kit.OK(r.t, r.Raw.HSet(ctx, key, flat...).Err())
		if _, has := fields[oddField]; !has {
			kit.OK(r.t, r.Raw.HDel(ctx, key, oddField).Err())
		}
	}
}

// Each kind of record is packed and unpacked with all its fields, also with fields that no list has. Verbs read strings
// of format 2 and write strings of format 3, and a change of one field leaves the others.
func TestRecordsKeepAllTheirFields(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		kit.RewriteEach(f.Store, func(name, text string) string {
			if name == "totals" {
				return recordsVerb
			}
			return text
		})
		r := recordsTest{f, t}
		for _, kind := range lua.Records {
			records := recordsOfKind(kind)
			r.store(f.Ctx, records)
			r.want("stored as format 2", records)
			for i, name := range []string{kind.Fields[len(kind.Fields)-1], kind.Others[0], oddField} {
				r.change(records, name, fmt.Sprint("changed ", i))
				r.want("after a change of "+name, records)
			}
			for key := range records {
				wantStringFormats(t, f, 3, strings.TrimPrefix(key, "pk:{default}:"))
			}
			made := map[string]map[string]string{}
			for i, value := range recordValues {
				for n, field := range kind.Fields {
					fields := map[string]string{field: value}
					for _, other := range kind.Fields[:n] {
						fields[other] = "x"
					}
					made[fmt.Sprintf("pk:{default}:%s:made-%d-%d", kind.Kind, i, n)] = fields
				}
			}
			r.do("new", made)
			r.want("made by a verb", made)
		}
	})
}
