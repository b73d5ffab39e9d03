// Package budget holds the arithmetic of money and envelopes. It knows no
// store and no wire but the JSON of its own types.
package budget

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/shopspring/decimal"
)

// Money is an amount of US dollars in integer nano-dollars, the unit the store
// counts in: 75 is the price of one token at $0.075 per million.
type Money int64

var nanosPerDollar = decimal.New(1, 9)

// ParseMoney reads a decimal number of dollars such as "1.5". More than nine
// decimals, a sign of infinity or an amount beyond about 4 million dollars is
// an error: the store keeps every number under 2^53.
func ParseMoney(s string) (Money, error) {
	if m, ok := parsePlainMoney(s); ok {
		return m, nil
	}
	// An exponent would let a short text stand for gigabytes of digits.
	if len(s) > 40 {
		return 0, fmt.Errorf("amount is too long")
	}
	d, err := decimal.NewFromString(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a decimal number of dollars", s)
	}
	if d.Exponent() > 20 || d.Exponent() < -40 {
		return 0, fmt.Errorf("%q has an exponent out of range", s)
	}
	n := d.Mul(nanosPerDollar)
	if !n.IsInteger() {
		return 0, fmt.Errorf("%q has more than nine decimals", s)
	}
	if n.Abs().GreaterThan(decimal.NewFromInt(maxNanoDollars)) {
		return 0, fmt.Errorf("%q is beyond $%d", s, maxNanoDollars/1_000_000_000)
	}
	return Money(n.IntPart()), nil
}

// parsePlainMoney reads an amount as it is written by String. It reports false for anything else, and for an amount
// that needs more care, such as one that is too large.
func parsePlainMoney(s string) (Money, bool) {
	digits, negative := strings.CutPrefix(s, "-")
	whole, decimals, dotted := strings.Cut(digits, ".")
	if whole == "" || len(whole) > 7 || len(decimals) > 9 || dotted && decimals == "" {
		return 0, false
	}
	n := int64(0)
	for _, part := range []string{whole, decimals} {
		for i := range len(part) {
			if part[i] < '0' || part[i] > '9' {
				return 0, false
			}
			n = 10*n + int64(part[i]-'0')
		}
	}
	for range 9 - len(decimals) {
		n *= 10
	}
	if negative {
		n = -n
	}
	return Money(n), n >= -maxNanoDollars && n <= maxNanoDollars
}

const maxNanoDollars = 4_000_000 * 1_000_000_000 // 4e15, under 2^53

// MaxMoney is the largest amount there is.
const MaxMoney = Money(maxNanoDollars)

// String writes the amount as a plain decimal number of dollars, no rounding.
func (m Money) String() string { return string(m.append(nil)) }

// append appends what String returns to b.
func (m Money) append(b []byte) []byte {
	n := uint64(m)
	if m < 0 {
		b, n = append(b, '-'), -n
	}
	const dollar = 1_000_000_000
	b = strconv.AppendUint(b, n/dollar, 10)
	decimals := n % dollar
	if decimals == 0 {
		return b
	}
	b = append(b, '.')
	for place := uint64(dollar / 10); decimals > 0; place /= 10 {
		b = append(b, byte('0'+decimals/place))
		decimals %= place
	}
	return b
}

// Dollars writes the amount for people, exact, with two decimals or more:
// "$0.30", "-$1.25", "$0.0001".
func (m Money) Dollars() string {
	sign := ""
	if m < 0 {
		sign, m = "-", -m
	}
	const cent = 10_000_000
	if m%cent != 0 {
		return sign + "$" + m.String()
	}
	return fmt.Sprintf("%s$%d.%02d", sign, m/(100*cent), m/cent%100)
}

// CeilCent is the next whole cent, or m where it is one.
func (m Money) CeilCent() Money {
	const cent = 10_000_000
	if rest := m % cent; rest > 0 {
		return m - rest + cent
	}
	return m - m%cent
}

// WireForm says how an amount is written, to those who wrote it otherwise.
func (m Money) WireForm() string {
	return fmt.Sprintf("Write dollars as a decimal number such as 0.5, with up to nine decimals and up to %d.",
		maxNanoDollars/1_000_000_000)
}

// MarshalJSON writes a JSON number of dollars.
func (m Money) MarshalJSON() ([]byte, error) { return m.append(make([]byte, 0, 24)), nil }

// UnmarshalJSON reads a JSON number of dollars, or a string holding one.
func (m *Money) UnmarshalJSON(b []byte) error {
	s := string(b)
	if s == "null" {
		*m = 0
		return nil
	}
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	v, err := ParseMoney(s)
	if err != nil {
		return err
	}
	*m = v
	return nil
}

// Envelope is an amount of both dimensions a task may spend: Tokens of an LLM (in
// plus out) and dollars (USD).
type Envelope struct {
	Tokens int64 `json:"tokens"`
	USD    Money `json:"usd"`
}

// Default is the envelope of a task that names none: one million tokens and
// one dollar.
func Default() Envelope { return Envelope{Tokens: 1_000_000, USD: 1_000_000_000} }

// MaxTokens bounds the tokens of an envelope, well under 2^53.
const MaxTokens = int64(math.MaxInt32) * 1_000

// Check refuses amounts that are negative or out of range.
func (e Envelope) Check() error {
	switch {
	case e.Tokens < 0 || e.USD < 0:
		return fmt.Errorf("an envelope cannot be negative")
	case e.Tokens > MaxTokens:
		return fmt.Errorf("tokens are at most %d", MaxTokens)
	}
	return nil
}

// Account is the state of one envelope. In both dimensions
// granted = available + held + spent + carved, always. Available is below zero
// only after a recorded overrun: a call that cost more than it had reserved.
type Account struct {
	Granted   Envelope `json:"granted"`
	Available Envelope `json:"available"`
	Held      Envelope `json:"held"`   // reserved by calls under way
	Spent     Envelope `json:"spent"`  // charged permanently
	Carved    Envelope `json:"carved"` // granted to the envelopes of children
}

// Add adds two amounts, neither below zero; at most [MaxMoney].
func (m Money) Add(o Money) Money { return min(m+o, MaxMoney) }

// Add adds both dimensions.
func (e Envelope) Add(o Envelope) Envelope {
	return Envelope{Tokens: e.Tokens + o.Tokens, USD: e.USD + o.USD}
}

// Sub subtracts both dimensions; the result may be negative.
func (e Envelope) Sub(o Envelope) Envelope {
	return Envelope{Tokens: e.Tokens - o.Tokens, USD: e.USD - o.USD}
}

// Covers reports whether need fits into e in both dimensions; an exact fit does.
func (e Envelope) Covers(need Envelope) bool { return need.Tokens <= e.Tokens && need.USD <= e.USD }

// Text writes the amount for people, without a dimension that is zero: "$0.50 and 100 tokens".
func (e Envelope) Text() string {
	var parts []string
	if e.USD != 0 {
		parts = append(parts, e.USD.Dollars())
	}
	if e.Tokens != 0 {
		parts = append(parts, strconv.FormatInt(e.Tokens, 10)+" tokens")
	}
	return strings.Join(parts, " and ")
}

// IsZero reports whether both dimensions are zero.
func (e Envelope) IsZero() bool { return e == Envelope{} }

// Balanced reports whether the books of the account add up.
func (a Account) Balanced() bool {
	return a.Granted == a.Available.Add(a.Held).Add(a.Spent).Add(a.Carved)
}
