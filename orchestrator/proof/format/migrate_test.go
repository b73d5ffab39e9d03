package format

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// record is a record with its fields.
func record(t *testing.T, raw redis.UniversalClient, key string) map[string]string {
	t.Helper()
	fields, err := rig.ReadRecord(t.Context(), raw, key)
	kit.OK(t, err)
	return fields
}

// recordsOf are all records of a namespace, by key.
func recordsOf(t *testing.T, raw redis.UniversalClient, namespace string) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for _, key := range recordKeys(t, raw, namespace) {
		all[key] = record(t, raw, key)
	}
	return all
}

// wantConverted checks that a namespace has the records that it had, and that none of them is a hash.
func wantConverted(t *testing.T, raw redis.UniversalClient, namespace string, before map[string]map[string]string) {
	t.Helper()
	after := recordsOf(t, raw, namespace)
	if len(before) == 0 || len(after) != len(before) {
		t.Errorf("%s has %d records, and had %d", namespace, len(after), len(before))
	}
	for key, fields := range before {
		if !maps.Equal(after[key], fields) {
			t.Errorf("%s is %v, and was %v", key, after[key], fields)
		}
		if kind := raw.Type(t.Context(), key).Val(); kind != "string" {
			t.Errorf("%s is a %s", key, kind)
		}
	}
	meta := raw.HMGet(t.Context(), metaKey(namespace), "format", "migrating").Val()
	if meta[0] != "3" || meta[1] != nil {
		t.Errorf("%s has the format %v, and its conversion is at %v", namespace, meta[0], meta[1])
	}
}

// step makes one step of the conversion, as an orchestrator does. It converts so many records at most.
func step(t *testing.T, raw redis.UniversalClient, namespace string, records int) (done bool) {
	t.Helper()
	script := kit.Builtin(t).Verbs["migrate"].Script()
	flat, err := raw.Eval(t.Context(), script, []string{metaKey(namespace)}, 500, records).Slice()
	kit.OK(t, err)
	for i := 0; i < len(flat); i += 2 {
		if flat[i] == "done" {
			return flat[i+1] == int64(1)
		}
	}
	t.Fatalf("the step answers %v", flat)
	return false
}

// oldLibrary are the functions of the build that wrote the data of a format.
type oldLibrary struct {
	t    *testing.T
	raw  redis.UniversalClient
	name string
	// known is the newest format that it knows.
	known string
}

func loadOldLibrary(t *testing.T, raw redis.UniversalClient, format string) oldLibrary {
	t.Helper()
	name, err := raw.FunctionLoad(t.Context(), string(unpack(t, format+".lua.gz"))).Result()
	kit.OK(t, err)
	return oldLibrary{t, raw, name, strings.TrimPrefix(format, "format")}
}

// wantRefused checks that a function of an earlier build refuses the store and changes nothing.
func (l oldLibrary) wantRefused(namespace, verb string, args ...any) {
	l.t.Helper()
	before := l.raw.Dump(l.t.Context(), metaKey(namespace)).Val()
	records := recordsOf(l.t, l.raw, namespace)
	err := l.raw.FCall(l.t.Context(), l.name+"_"+verb, []string{metaKey(namespace)}, args...).Err()
	if err == nil || !strings.HasPrefix(err.Error(), "store_newer format=3 known="+l.known) {
		l.t.Errorf("%s of the earlier build answers %v", verb, err)
	}
	if after := l.raw.Dump(l.t.Context(), metaKey(namespace)).Val(); after != before {
		l.t.Errorf("%s of the earlier build has changed the record of the namespace", verb)
	}
	if after := recordsOf(l.t, l.raw, namespace); !maps.EqualFunc(records, after, maps.Equal) {
		l.t.Errorf("%s of the earlier build has changed a record", verb)
	}
}

// A process that is killed after any step leaves a store that the next one converts to its end. From the
// first step on the earlier build refuses it, in the middle and at the end.
func TestAConversionIsKilledAfterAnyStep(t *testing.T) {
	const records = 5
	for kill := 1; ; kill++ {
		where, raw := startOn(t, "format1")
		old, before := loadOldLibrary(t, raw, "format1"), recordsOf(t, raw, "team")
		if kill == 1 { // which the earlier build can use until then
			kit.OK(t, raw.FCall(t.Context(), old.name+"_stats", []string{metaKey("team")}, 0).Err())
		}
		done := false
		for i := 0; i < kill && !done; i++ {
			done = step(t, raw, "team", records)
		}
		old.wantRefused("team", "stats", 0)
		old.wantRefused("team", "tick")
		old.wantRefused("team", "adopt", "", "", "", "", "store_x", 1, 1)
		s := open(t, where, []string{"team"})
		wantConverted(t, raw, "team", before)
		found, err := kit.InspectAll(t.Context(), s.Engine("team"), false)
		if kit.OK(t, err); len(found) > 0 {
			t.Errorf("after %d steps: %+v", kill, found)
		}
		old.wantRefused("team", "tick")
		kit.OK(t, s.Close())
		if done {
			t.Logf("%d records in %d steps", len(before), kill)
			return
		}
		kill += kill // the first steps, and then fewer
	}
}

// One step takes a store of format 2 over. It leaves the strings as they are, however many there are, and the earlier
// build refuses the store from then on.
func TestAStoreOfFormat2IsTakenOverInOneStep(t *testing.T) {
	_, raw := startOn(t, "format2")
	old, before := loadOldLibrary(t, raw, "format2"), recordsOf(t, raw, "team")
	kit.OK(t, raw.FCall(t.Context(), old.name+"_stats", []string{metaKey("team")}, 0).Err())
	texts := map[string]string{}
	for key := range before {
		texts[key] = raw.Get(t.Context(), key).Val()
	}
	if !step(t, raw, "team", 1) {
		t.Error("there is more to do after the first step")
	}
	wantConverted(t, raw, "team", before)
	for key, was := range texts {
		if raw.Get(t.Context(), key).Val() != was {
			t.Errorf("%s was written again", key)
		}
		if format, err := kit.StringFormat(t.Context(), raw, key); err != nil || format != 2 {
			t.Errorf("%s has format %d, %v", key, format, err)
		}
	}
	old.wantRefused("team", "stats", 0)
	old.wantRefused("team", "tick")
}

// Two processes that start at once convert one store together.
func TestTwoProcessesConvertAtOnce(t *testing.T) {
	where, raw := startOn(t, "format1")
	names := namespaces(t, raw)
	before := map[string]map[string]map[string]string{}
	for _, name := range names {
		before[name] = recordsOf(t, raw, name)
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { open(t, where, names) })
	}
	both.Wait()
	for _, name := range names {
		wantConverted(t, raw, name, before[name])
	}
}

// Store time stands still while a store is converted, however long that takes. So no lease runs out, and
// its holder renews it afterwards.
func TestNoLeaseRunsOutDuringAConversion(t *testing.T) {
	where, raw := startOn(t, "format1")
	meta := raw.HMGet(t.Context(), metaKey("team"), "now", "raw").Val()
	leases := raw.ZRangeWithScores(t.Context(), "pk:{team}:deadlines", 0, -1).Val()
	if len(leases) < 10 {
		t.Fatalf("there are %d leases", len(leases))
	}
	for done := false; !done; {
		done = step(t, raw, "team", 5)
		if now := raw.HMGet(t.Context(), metaKey("team"), "now", "raw").Val(); now[0] != meta[0] || now[1] != meta[1] {
			t.Fatalf("time moved from %v to %v", meta, now)
		}
	}
	// The clock of the server is months ahead of the last call, since nothing stops it here.
	s, err := orchestrator.Open(t.Context(), configOf(t, where, []string{"team"}))
	kit.OK(t, err)
	defer s.Close()
	kit.OK(t, s.Engine("team").Tick(t.Context()))
	ended, err := s.Engine("team").ExpireDue(t.Context(), 100)
	if kit.OK(t, err); ended > 0 {
		t.Errorf("%d leases have run out", ended)
	}
	stats, err := s.Engine("team").Stats(t.Context())
	kit.OK(t, err)
	var was int64
	_, err = fmt.Sscan(fmt.Sprint(meta[0]), &was)
	kit.OK(t, err)
	if passed := int64(stats.StoreTime) - was; passed < 0 || passed > 1500 {
		t.Errorf("store time moved on by %d ms", passed)
	}
	if after := raw.ZRangeWithScores(t.Context(), "pk:{team}:deadlines", 0, -1).Val(); len(after) != len(leases) {
		t.Errorf("%d of %d leases are left", len(after), len(leases))
	}
}

// The records of a large namespace are converted in steps that block the server for a short time each.
func TestALargeStoreIsConvertedInBoundedSteps(t *testing.T) {
	_, raw := startOn(t, "format1")
	const tasks, records = 10_000, 100 // as an orchestrator does
	copies := `
local fields = redis.call('HGETALL', ARGV[1])
for i = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  for _, kind in ipairs({ 'task:', 'run:', 'env:' }) do
    redis.call('HSET', 'pk:{team}:' .. kind .. string.format('copy_%d', i), unpack(fields))
  end
end`
	one := recordKeys(t, raw, "team")
	for at := 1; at <= tasks; at += 1000 {
		err := raw.Eval(t.Context(), copies, []string{metaKey("team")}, one[len(one)-1], at, at+999).Err()
		if err != redis.Nil {
			kit.OK(t, err)
		}
	}
	used := kit.UsedMemory(t, raw)
	left := hashes(t, raw, "team")
	want := left
	steps, longest, all := 0, time.Duration(0), time.Duration(0)
	for done := false; !done; steps++ {
		kit.OK(t, raw.ConfigResetStat(t.Context()).Err())
		done = step(t, raw, "team", records)
		took := evalTime(t, raw)
		longest, all = max(longest, took), all+took
		now := hashes(t, raw, "team")
		if left-now > records {
			t.Errorf("step %d has converted %d records", steps, left-now)
		}
		left = now
	}
	if left > 0 {
		t.Errorf("%d records are left", left)
	}
	if now := kit.UsedMemory(t, raw); now > used+used/50 {
		t.Errorf("the store takes %d bytes, and took %d before", now, used)
	}
	t.Logf("%d records in %d steps, which took the server %s on average and %s at most; %d bytes of memory, before %d",
		want, steps, all/time.Duration(steps), longest, kit.UsedMemory(t, raw), used)
}

// hashes is how many records are not converted.
func hashes(t *testing.T, raw redis.UniversalClient, namespace string) (n int) {
	t.Helper()
	keys := raw.ScanType(t.Context(), 0, "pk:{"+namespace+"}:*", 10_000, "hash").Iterator()
	for keys.Next(t.Context()) {
		if rig.IsRecord(keys.Val()) {
			n++
		}
	}
	kit.OK(t, keys.Err())
	return n
}

// evalTime is how long the server has worked on scripts since its statistics were reset.
func evalTime(t *testing.T, raw redis.UniversalClient) time.Duration {
	t.Helper()
	text, err := raw.Info(t.Context(), "commandstats").Result()
	kit.OK(t, err)
	_, rest, _ := strings.Cut(text, "cmdstat_eval:calls=1,usec=")
	var us int64
	_, err = fmt.Sscanf(rest, "%d", &us)
	kit.OK(t, err)
	return time.Duration(us) * time.Microsecond
}

// A full store is converted. The records take about as much memory afterwards.
func TestAFullStoreIsConverted(t *testing.T) {
	where, raw := startOn(t, "format1")
	before := recordsOf(t, raw, "team")
	kit.OK(t, raw.ConfigSet(t.Context(), "maxmemory", "1").Err())
	open(t, where, []string{"team"})
	wantConverted(t, raw, "team", before)
}

// copyToDurable copies the namespace team to a server that keeps what it was told.
func copyToDurable(t *testing.T) (*rig.DurableServer, redis.UniversalClient) {
	t.Helper()
	_, from := startOn(t, "format1")
	d := rig.StartDurableServer(t)
	where := d.Store()
	raw := redis.NewUniversalClient(&where.Redis)
	t.Cleanup(func() { _ = raw.Close() })
	keys := from.Scan(t.Context(), 0, "pk:{team}:*", 1000).Iterator()
	for keys.Next(t.Context()) {
		value, err := from.Dump(t.Context(), keys.Val()).Result()
		kit.OK(t, err)
		kit.OK(t, raw.RestoreReplace(t.Context(), keys.Val(), 0, value).Err())
	}
	kit.OK(t, keys.Err())
	setClock(t, raw, clock(t, from))
	takeOver(t, raw)
	return d, raw
}

// A store that ends in the middle of its conversion, and starts again, is converted to its end by the
// process that began. The position of the first server means nothing to the second.
func TestAStoreEndsDuringItsConversion(t *testing.T) {
	d, raw := copyToDurable(t)
	before := recordsOf(t, raw, "team")
	done := step(t, raw, "team", 5)
	if done {
		t.Fatal("one step was enough")
	}
	cfg := configOf(t, d.Store(), []string{"team"})
	calls := 0
	cfg.Fault = func(point string) error {
		if point != "redis.migrate.before" {
			return nil
		}
		if calls++; calls == 1 {
			d.Kill()
			d.Start()
		}
		return nil
	}
	s, err := orchestrator.Open(t.Context(), cfg)
	kit.OK(t, err)
	defer s.Close()
	wantConverted(t, raw, "team", before)
	if calls < 2 {
		t.Errorf("%d steps were made", calls)
	}
}

// A step that fails, or whose answer is lost, is made again.
func TestAFailedStepIsMadeAgain(t *testing.T) {
	where, raw := startOn(t, "format1")
	before := recordsOf(t, raw, "team")
	cfg := configOf(t, where, []string{"team"})
	var points []string
	cfg.Fault = func(point string) error {
		if !strings.HasPrefix(point, "redis.migrate.") {
			return nil
		}
		points = append(points, point)
		if len(points) == 1 || len(points) == 3 {
			return picket.ErrUnknown
		}
		return nil
	}
	s, err := orchestrator.Open(t.Context(), cfg)
	kit.OK(t, err)
	defer s.Close()
	wantConverted(t, raw, "team", before)
	if want := "redis.migrate.before redis.migrate.before redis.migrate.after redis.migrate.before"; !strings.HasPrefix(
		strings.Join(points, " "), want) {
		t.Errorf("the steps were %v", points)
	}
}

// A process that is stopped while it converts a store ends at once.
func TestAConversionIsStopped(t *testing.T) {
	where, _ := startOn(t, "format1")
	ctx, stop := context.WithCancel(t.Context())
	cfg := configOf(t, where, []string{"team"})
	cfg.Fault = func(point string) error {
		if point == "redis.migrate.after" {
			stop()
			return picket.ErrUnknown
		}
		return nil
	}
	_, err := orchestrator.Open(ctx, cfg)
	kit.Refused(t, err, picket.CodeUnavailable)
}

// A step converts few records if they are large. A record that expires still does.
func TestAStepIsBoundedByBytes(t *testing.T) {
	_, raw := startOn(t, "format1")
	const large = 6
	for i := range large {
		key := fmt.Sprintf("pk:{team}:run:large_%d", i)
		kit.OK(t, raw.HSet(t.Context(), key, "report", strings.Repeat("x", 600_000)).Err())
		kit.OK(t, raw.PExpire(t.Context(), key, time.Hour).Err())
	}
	left := func() (n int) {
		for i := range large {
			if raw.Type(t.Context(), fmt.Sprintf("pk:{team}:run:large_%d", i)).Val() == "hash" {
				n++
			}
		}
		return n
	}
	for before, done := large, false; !done; before = left() {
		done = step(t, raw, "team", 500)
		if converted := before - left(); converted > 2 {
			t.Errorf("one step has converted %d records of 600 KB", converted)
		}
	}
	for i := range large {
		if ttl := raw.PTTL(t.Context(), fmt.Sprintf("pk:{team}:run:large_%d", i)).Val(); ttl <= 0 {
			t.Errorf("record %d does not expire any more", i)
		}
	}
	if n := left(); n > 0 {
		t.Errorf("%d large records are not converted", n)
	}
}
