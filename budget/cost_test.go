package budget

import (
	"maps"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func anyPrice(t *rapid.T) Price {
	p := Price{
		Call:     Money(rapid.Int64Range(0, maxNanoDollars).Draw(t, "call")),
		ChargeOn: rapid.SampledFrom([]ChargeOn{"", ChargeOnDispatch, ChargeOnSuccess}).Draw(t, "on"),
	}
	for _, unit := range []Unit{UnitByte, UnitSecond, UnitResultToken} {
		if rapid.Bool().Draw(t, string(unit)) {
			if p.PerUnit == nil {
				p.PerUnit = map[Unit]Money{}
			}
			p.PerUnit[unit] = Money(rapid.Int64Range(0, maxNanoDollars).Draw(t, "each"))
		}
	}
	if len(p.PerUnit) > 0 || rapid.Bool().Draw(t, "capped") {
		p.Max = Money(rapid.Int64Range(max(int64(p.Call), 1), maxNanoDollars).Draw(t, "max"))
	}
	return p
}

func anyUsage(t *rapid.T) Usage {
	any64 := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 100_000),
		rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64, 0, 1}))
	return Usage{Bytes: any64.Draw(t, "bytes"), Millis: any64.Draw(t, "ms"), ResultTokens: any64.Draw(t, "tokens")}
}

// What was reserved is enough, whatever the call used: a tool with a listed
// price can never overrun its envelope.
func TestNoCallCostsMoreThanMaxCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, u := anyPrice(t), anyUsage(t)
		if err := p.Check(); err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		for _, failed := range []bool{false, true} {
			cost, free := p.Cost(u, failed), failed && p.ChargeOn == ChargeOnSuccess
			if cost < 0 || cost > p.MaxCost() || free && cost != 0 || !free && cost < min(p.Call, p.MaxCost()) {
				t.Fatalf("%+v used %+v, failed %t: costs %s, bound %s", p, u, failed, cost, p.MaxCost())
			}
		}
	})
}

// The sum is that of exact arithmetic, cut at the bound.
func TestCostIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, u := anyPrice(t), anyUsage(t)
		want := new(big.Rat).SetInt64(int64(p.Call))
		for unit, each := range p.PerUnit {
			want.Add(want, new(big.Rat).
				SetFrac(new(big.Int).Mul(big.NewInt(u.units(unit)), big.NewInt(int64(each))), big.NewInt(1)))
		}
		if bound := new(big.Rat).SetInt64(int64(p.MaxCost())); want.Cmp(bound) > 0 {
			want = bound
		}
		if got := new(big.Rat).SetInt64(int64(p.Cost(u, false))); got.Cmp(want) != 0 {
			t.Fatalf("%+v used %+v: %s, want %s", p, u, got, want)
		}
	})
}

func TestStartedUnitsAreCharged(t *testing.T) {
	perUnit := func(unit Unit) Price { return Price{PerUnit: map[Unit]Money{unit: 1}, Max: maxNanoDollars} }
	for _, c := range []struct {
		unit Unit
		use  Usage
		want Money
	}{
		{UnitByte, Usage{Bytes: 7}, 7}, {UnitByte, Usage{Bytes: -7}, 0},
		{UnitSecond, Usage{}, 0}, {UnitSecond, Usage{Millis: 1}, 1}, {UnitSecond, Usage{Millis: 1000}, 1},
		{UnitSecond, Usage{Millis: 1001}, 2},
		{UnitSecond, Usage{Millis: math.MaxInt64}, maxNanoDollars},
		{UnitResultToken, Usage{Bytes: 1}, 1}, {UnitResultToken, Usage{Bytes: 4}, 1},
		{UnitResultToken, Usage{Bytes: 5}, 2},
		{UnitResultToken, Usage{Bytes: 5, ResultTokens: 9}, 9},
	} {
		if got := perUnit(c.unit).Cost(c.use, false); got != c.want {
			t.Errorf("%s of %+v: %d, want %d", c.unit, c.use, got, c.want)
		}
	}
}

// Tokens are priced per million, so a single one costs a fraction of a
// nano-dollar at times: the sum of a call is rounded up once, not each part.
func TestTokensAreRoundedUpOnce(t *testing.T) {
	p := TokenPrice{Input: 1, Output: 1, CacheRead: 1, CacheWrite: 1} // a millionth of a nano-dollar each
	for used, want := range map[TokenUsage]Money{
		{}:                                      0,
		{Input: 1}:                              1,
		{1, 1, 1, 1, 0}:                         1,
		{250_000, 250_000, 250_000, 1, 0}:       1,
		{250_000, 250_000, 250_000, 250_000, 0}: 1,
		{250_000, 250_000, 250_000, 250_001, 0}: 2,
		{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, 0}:       36_893_488_147_420,
		{math.MinInt64, math.MinInt64, math.MinInt64, math.MinInt64, 0}:       0,
		{Input: -5, Output: 1_000_000, CacheRead: -1, CacheWrite: -1_000_000}: 1,
	} {
		if got := p.Cost(used); got != want {
			t.Errorf("%+v: %d, want %d", used, got, want)
		}
	}
	// $3 and $15 a million: what providers publish.
	claude := TokenPrice{Input: 3_000_000_000, Output: 15_000_000_000, CacheRead: 300_000_000}
	if got := claude.Cost(TokenUsage{Input: 1000, Output: 100, CacheRead: 10_000}); got != 3_000_000+1_500_000+
		3_000_000 {
		t.Errorf("cost is %s", got)
	}
	if got := claude.Cost(TokenUsage{Output: math.MaxInt64}); got != maxNanoDollars {
		t.Errorf("more than can be counted costs %s", got)
	}
	if got := claude.Cost(TokenUsage{CacheWrite: 1000}); got != 3_000_000 {
		t.Errorf("a cache write without a price of its own costs %s", got)
	}
	if got := claude.Cost(TokenUsage{CacheWrite: 1000, CacheWriteHour: 400}); got != 600*3_000+400*6_000 {
		t.Errorf("a cache write for an hour costs %s", got)
	}
	if got := claude.Cost(TokenUsage{
		CacheWrite:     10,
		CacheWriteHour: 4000,
	}) - claude.Cost(TokenUsage{CacheWrite: 10, CacheWriteHour: 10}); got != 0 {
		t.Errorf("more is kept for an hour than is kept, for $%s", got)
	}
	if claude.MaxInput() != claude.Input || (TokenPrice{Input: 1, CacheWrite: 2}).MaxInput() != 2 {
		t.Error("the dearest way in is another one")
	}
}

func TestTokensNeverOverflow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 1<<40))
		m := rapid.Custom(func(t *rapid.T) Money { return Money(rapid.Int64Range(0, maxNanoDollars).Draw(t, "m")) })
		p := TokenPrice{m.Draw(t, "in"), m.Draw(t, "out"), m.Draw(t, "read"), m.Draw(t, "write")}
		small := TokenUsage{n.Draw(t, "in"), n.Draw(t, "out"), n.Draw(t, "read"), n.Draw(t, "write"), 0}
		more := small
		if more.Output < math.MaxInt64 {
			more.Output++
		}
		if c := p.Cost(small); c < 0 || c > maxNanoDollars || p.Cost(more) < c {
			t.Fatalf("%+v at %+v: %s, with one token more %s", small, p, c, p.Cost(more))
		}
		if sum := small.Total(); sum < 0 || sum > MaxTokens {
			t.Fatalf("%+v are %d tokens", small, sum)
		}
	})
}

func TestPricesThatCannotBeChargedAreRefused(t *testing.T) {
	for what, p := range map[string]Price{
		"negative":  {Call: -1},
		"max below": {Call: 2, Max: 1},
		"no max":    {PerUnit: map[Unit]Money{UnitByte: 1}},
		"per unit":  {PerUnit: map[Unit]Money{UnitByte: -1}, Max: 1},
		"unit":      {PerUnit: map[Unit]Money{"page": 1}, Max: 1},
		"charge_on": {Call: 1, ChargeOn: "never"},
		"minus max": {Max: -1},
		"too dear":  {Call: maxNanoDollars + 1},
	} {
		if _, err := NewPriceList(map[string]Price{"t": p}, nil); err == nil || !strings.Contains(err.Error(), `"t"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"", "a*b", "**", strings.Repeat("x", 129)} {
		if _, err := NewPriceList(map[string]Price{name: {}}, nil); err == nil {
			t.Errorf("the name %q is taken", name)
		}
		if _, err := NewPriceList(nil, map[string]TokenPrice{name: {}}); err == nil {
			t.Errorf("the model %q is taken", name)
		}
	}
	if _, err := NewPriceList(nil, map[string]TokenPrice{"m": {Output: -1}}); err == nil {
		t.Error("a model with a negative price is taken")
	}
}

func TestLongestPrefixWins(t *testing.T) {
	l, err := NewPriceList(map[string]Price{
		"*":                {Call: 1},
		"github_*":         {Call: 2},
		"github_issue_*":   {Call: 3},
		"github_issue_get": {Call: 4},
		"github":           {Call: 5},
	},
		map[string]TokenPrice{"claude-*": {Input: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Money{
		"sql":               1,
		"github_x":          2,
		"github_":           2,
		"github_issue_list": 3,
		"github_issue_get":  4,
		"github":            5,
		"github_issue_get2": 3,
	} {
		if p, ok := l.Tool(name); !ok || p.Call != want {
			t.Errorf("%s costs %d (%t), want %d", name, p.Call, ok, want)
		}
	}
	if _, ok := l.Model("gpt-5"); ok {
		t.Error("a model without a price has one")
	}
	if p, ok := l.Model("claude-x"); !ok || p.Input != 1 {
		t.Errorf("%+v %t", p, ok)
	}
	var none *PriceList
	if _, ok := none.Tool("sql"); ok {
		t.Error("no list has a price")
	}
}

func TestVersionIsContentHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tools := map[string]Price{}
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			tools[rapid.StringMatching(`[a-z_]{1,8}\*?`).Draw(t, "name")] = anyPrice(t)
		}
		one, err := NewPriceList(tools, nil)
		same, err2 := NewPriceList(maps.Clone(tools), nil)
		if err != nil || err2 != nil || one.Version != same.Version {
			t.Fatalf("%v %v: %s and %s", err, err2, one.Version, same.Version)
		}
		changed := maps.Clone(tools)
		changed["another"] = Price{Call: 1}
		other, err := NewPriceList(changed, nil)
		if _, had := tools["another"]; !had && (err != nil || other.Version == one.Version) {
			t.Fatalf("other prices have the version %s, too (%v)", one.Version, err)
		}
	})
}

func FuzzCost(f *testing.F) {
	f.Add(int64(1), int64(1), int64(1000), int64(1<<62), int64(1<<62))
	f.Fuzz(func(t *testing.T, call, each, most, bytes, ms int64) {
		p := Price{
			Call:    Money(call),
			PerUnit: map[Unit]Money{UnitByte: Money(each), UnitSecond: Money(each)},
			Max:     Money(most),
		}
		if p.Check() != nil {
			return
		}
		if c := p.Cost(Usage{Bytes: bytes, Millis: ms}, false); c < 0 || c > p.MaxCost() {
			t.Errorf("%+v: %d of at most %d", p, c, p.MaxCost())
		}
	})
}

// What follows a colon, such as :online, may change the price: a price has to name it.
func TestAStarStandsForNoColon(t *testing.T) {
	list, err := NewPriceList(nil, map[string]TokenPrice{"gpt-*": {Input: 1}, "gpt-x:free": {Input: 2},
		"local:*": {Input: 3}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"gpt-x": 1, "gpt-x:free": 2, "gpt-x:online": 0, "gpt-y:free": 0,
		"local:8b": 3, "local:8b:online": 0, "gpt-": 1, "other": 0} {
		if p, ok := list.Model(name); int64(p.Input) != want || ok != (want != 0) {
			t.Errorf("%s costs %v, %v", name, p.Input, ok)
		}
	}
}
