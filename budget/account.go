package budget

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

// IsZero reports whether both dimensions are zero.
func (e Envelope) IsZero() bool { return e == Envelope{} }

// Balanced reports whether the books of the account add up.
func (a Account) Balanced() bool {
	return a.Granted == a.Available.Add(a.Held).Add(a.Spent).Add(a.Carved)
}
