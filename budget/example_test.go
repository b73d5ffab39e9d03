package budget_test

import (
	"fmt"

	"github.com/picket-dev/picket/budget"
)

// A call of a tool reserves its highest price and costs what it has used.
func ExamplePrice() {
	price := budget.Price{
		Call:    1_000_000, // nano-dollars
		PerUnit: map[budget.Unit]budget.Money{budget.UnitSecond: 2_000_000},
		Max:     50_000_000,
	}
	fmt.Println("reserved", price.MaxCost())
	fmt.Println("used 2.5 s", price.Cost(budget.Usage{Millis: 2500}, false))
	fmt.Println("used an hour", price.Cost(budget.Usage{Millis: 3_600_000}, false))
	// Output:
	// reserved 0.05
	// used 2.5 s 0.007
	// used an hour 0.05
}

// An envelope covers a need only if it has enough of both dimensions.
func ExampleEnvelope() {
	have := budget.Envelope{USD: 1_000_000_000, Tokens: 1000}
	need := budget.Envelope{USD: 300_000_000, Tokens: 400}
	for have.Covers(need) {
		have = have.Sub(need)
		fmt.Println(have.USD, "and", have.Tokens, "tokens are left")
	}
	// Output:
	// 0.7 and 600 tokens are left
	// 0.4 and 200 tokens are left
}
