package budget

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"fmt"
	"math/big"
	"strings"
)

// Usage is what a call of a tool has used. Negative figures count as none.
type Usage struct {
	Bytes        int64 // of the answer
	Millis       int64 // the call took
	ResultTokens int64 // 0: Bytes/4, begun ones count
}

// units is how many of a unit were used; begun ones count.
func (u Usage) units(unit Unit) int64 {
	n := int64(0)
	switch unit {
	case UnitByte:
		n = u.Bytes
	case UnitSecond:
		n = ceilDiv(u.Millis, 1000)
	case UnitResultToken:
		if n = u.ResultTokens; n == 0 {
			n = ceilDiv(u.Bytes, 4)
		}
	}
	return max(n, 0)
}

func ceilDiv(n, by int64) int64 {
	if n <= 0 {
		return 0
	}
	return (n-1)/by + 1
}

// MaxCost is what a call may cost at most, and so what is reserved for it.
func (p Price) MaxCost() Money {
	if p.Max > 0 && (len(p.PerUnit) > 0 || p.Max < p.Call) {
		return p.Max
	}
	return p.Call
}

// Cost is what a call that left has cost: never more than [Price.MaxCost].
func (p Price) Cost(u Usage, failed bool) Money {
	if failed && p.ChargeOn == ChargeOnSuccess {
		return 0
	}
	sum := big.NewInt(int64(p.Call))
	for unit, each := range p.PerUnit {
		sum.Add(sum, multiply(u.units(unit), each))
	}
	return min(clampToMax(sum), p.MaxCost())
}

// MaxCostOf is what so many calls cost, each at [Price.MaxCost]; at most [MaxMoney].
func (p Price) MaxCostOf(calls int64) Money { return clampToMax(multiply(calls, p.MaxCost())) }

// Check refuses a price that cannot be charged. The error names the field.
func (p Price) Check() error {
	switch {
	case p.Call < 0 || p.Max < 0:
		return fmt.Errorf("a price cannot be negative")
	case max(p.Call, p.Max) > maxNanoDollars:
		return fmt.Errorf("a call costs at most $%d", int64(maxNanoDollars/1_000_000_000))
	case len(p.PerUnit) > 0 && p.Max == 0:
		return fmt.Errorf("per_unit needs max: it is what is reserved before the call")
	case p.Max > 0 && p.Max < p.Call:
		return fmt.Errorf("max is less than call")
	case p.ChargeOn != "" && p.ChargeOn != ChargeOnDispatch && p.ChargeOn != ChargeOnSuccess:
		return fmt.Errorf("charge_on is %q, not dispatch or success", p.ChargeOn)
	}
	for unit, each := range p.PerUnit {
		if unit != UnitByte && unit != UnitSecond && unit != UnitResultToken {
			return fmt.Errorf("per_unit has %q, not byte, second or result_token", unit)
		}
		if each < 0 {
			return fmt.Errorf("a price cannot be negative")
		}
	}
	return nil
}

// TokenUsage counts the tokens of an LLM call. Input leaves out what was read from or
// written to the cache. Negative figures count as none.
type TokenUsage struct {
	Input      int64
	Output     int64 // of the answer
	CacheRead  int64 // read from the cache
	CacheWrite int64 // written to the cache
	// CacheWriteHour is how many of CacheWrite are kept for an hour.
	CacheWriteHour int64
}

// Total is what the call takes from the tokens of an envelope.
func (t TokenUsage) Total() int64 {
	sum := new(big.Int)
	for _, n := range []int64{t.Input, t.Output, t.CacheRead, t.CacheWrite} {
		sum.Add(sum, big.NewInt(max(n, 0)))
	}
	if sum.Cmp(big.NewInt(MaxTokens)) > 0 {
		return MaxTokens
	}
	return sum.Int64()
}

// Cost is what the tokens cost, rounded up once to the next nano-dollar.
func (p TokenPrice) Cost(t TokenUsage) Money {
	read, write := p.CacheRead, p.CacheWrite
	if read == 0 {
		read = p.Input
	}
	if write == 0 {
		write = p.Input
	}
	sum := multiply(t.Input, p.Input)
	sum.Add(sum, multiply(t.Output, p.Output))
	sum.Add(sum, multiply(t.CacheRead, read))
	hour := min(max(t.CacheWriteHour, 0), max(t.CacheWrite, 0))
	sum.Add(sum, multiply(t.CacheWrite-hour, write))
	sum.Add(sum, multiply(hour, p.CacheWriteHour()))
	million := big.NewInt(1_000_000)
	sum.Add(sum, big.NewInt(999_999))
	return clampToMax(sum.Quo(sum, million))
}

// MaxInput is the highest price of an input token, cache included: the bound of
// a prompt whose way through the cache is not known yet.
func (p TokenPrice) MaxInput() Money { return max(p.Input, p.CacheRead, p.CacheWrite) }

// CacheWriteHour is the price of a token that is kept in the cache for an hour: twice that
// of one that goes in, as vendors take it.
func (p TokenPrice) CacheWriteHour() Money { return max(min(p.Input, MaxMoney/2)*2, p.CacheWrite) }

// Check refuses a price that cannot be charged.
func (p TokenPrice) Check() error {
	if min(p.Input, p.Output, p.CacheRead, p.CacheWrite) < 0 {
		return fmt.Errorf("a price cannot be negative")
	}
	return nil
}

// multiply is n x each; less than nothing of n is nothing.
func multiply(n int64, each Money) *big.Int {
	return new(big.Int).Mul(big.NewInt(max(n, 0)), big.NewInt(int64(each)))
}

// clampToMax keeps an amount within what the store can count.
func clampToMax(n *big.Int) Money {
	if n.Cmp(big.NewInt(maxNanoDollars)) > 0 {
		return maxNanoDollars
	}
	return Money(n.Int64())
}

// NewPriceList checks prices and gives them their version.
func NewPriceList(tools map[string]Price, models map[string]TokenPrice) (*PriceList, error) {
	for name, p := range tools {
		if err := cmp.Or(checkName(name), p.Check()); err != nil {
			return nil, fmt.Errorf("tool %q: %w", name, err)
		}
	}
	for name, p := range models {
		if err := cmp.Or(checkName(name), p.Check()); err != nil {
			return nil, fmt.Errorf("model %q: %w", name, err)
		}
	}
	l := &PriceList{Tools: tools, Models: models}
	content, err := stdjson.Marshal(l) // maps are written in the order of their keys
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	l.Version = "p" + hex.EncodeToString(sum[:6])
	return l, nil
}

func checkName(name string) error {
	if name == "" || len(name) > 128 || strings.Contains(strings.TrimSuffix(name, "*"), "*") {
		return fmt.Errorf("a name has 1 to 128 characters, and * stands at its end only")
	}
	return nil
}

// Tool finds the price of a tool. A nil list knows none.
func (l *PriceList) Tool(name string) (Price, bool) {
	if l == nil {
		return Price{}, false
	}
	price, named := lookup(l.Tools, name)
	return price, named >= 0
}

// Model finds the price of a model. A nil list knows none.
func (l *PriceList) Model(name string) (TokenPrice, bool) {
	if l == nil {
		return TokenPrice{}, false
	}
	price, named := lookup(l.Models, name)
	if named <= strings.LastIndexByte(name, ':') {
		return TokenPrice{}, false
	}
	return price, true
}

// lookup takes the whole name, then the longest prefix. It returns how much of the name
// the price names, -1 if there is no price.
func lookup[P any](prices map[string]P, name string) (best P, named int) {
	if p, ok := prices[name]; ok {
		return p, len(name)
	}
	named = -1
	for pattern, p := range prices {
		prefix, open := strings.CutSuffix(pattern, "*")
		if open && strings.HasPrefix(name, prefix) && len(prefix) > named {
			best, named = p, len(prefix)
		}
	}
	return best, named
}

// Unit is what a price can count beside calls.
type Unit string

const (
	UnitByte        Unit = "byte"         // of the answer
	UnitSecond      Unit = "second"       // of the call, begun ones count
	UnitResultToken Unit = "result_token" // of the answer, four bytes each, begun ones count
)

// ChargeOn says which calls cost anything.
type ChargeOn string

const (
	ChargeOnDispatch ChargeOn = "dispatch" // every call that left; the default
	ChargeOnSuccess  ChargeOn = "success"  // only one that the tool did not call a failure
)

// Price is what a call of a tool costs: Call, plus PerUnit times what it used,
// at most Max. The zero Price is free, which has to be said: a tool without a
// price is refused.
type Price struct {
	Call Money `json:"call"`
	// PerUnit needs Max: what a call may use is not known before it is made, and
	// Max is what is reserved.
	PerUnit  map[Unit]Money `json:"perUnit,omitempty"`
	Max      Money          `json:"max,omitzero"`
	ChargeOn ChargeOn       `json:"chargeOn,omitempty"`
}

// TokenPrice is what a model costs: Input and Output per million tokens, and the same for its cache.
type TokenPrice struct {
	Input      Money `json:"input"`
	Output     Money `json:"output"`
	CacheRead  Money `json:"cacheRead,omitzero"`  // 0: as Input
	CacheWrite Money `json:"cacheWrite,omitzero"` // 0: as Input
}

// PriceList is all prices of an installation: Tools and Models by name. A name is looked up as a whole,
// then by the longest prefix that ends in "*".
type PriceList struct {
	Version string                `json:"version"` // made from the content: the same prices have the same version
	Tools   map[string]Price      `json:"tools"`
	Models  map[string]TokenPrice `json:"models"`
}
