package budget

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

// TokenPrice is what a model costs per million tokens.
type TokenPrice struct {
	Input      Money `json:"input"`
	Output     Money `json:"output"`
	CacheRead  Money `json:"cacheRead,omitzero"`  // 0: as Input
	CacheWrite Money `json:"cacheWrite,omitzero"` // 0: as Input
}

// PriceList is all prices of an installation. A tool is looked up by its whole name,
// then by the longest prefix that ends in "*".
type PriceList struct {
	Version string                `json:"version"` // made from the content: the same prices have the same version
	Tools   map[string]Price      `json:"tools"`
	Models  map[string]TokenPrice `json:"models"`
}
