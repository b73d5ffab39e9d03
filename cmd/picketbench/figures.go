package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// noisySpread is the spread above which a side's figure says little.
const noisySpread = 0.30

// plan is the size of a measurement.
type plan struct {
	Rounds  int  `json:"rounds"`  // of each side, after one that does not count
	Tasks   int  `json:"tasks"`   // a round, where a scenario has no size of its own
	Workers int  `json:"workers"` // and as many submitters
	Payload int  `json:"payload"` // bytes a task
	Quick   bool `json:"quick,omitempty"`
}

// pick is a size: the full one, or the one of -quick.
func (p plan) pick(full, quick int) int {
	if p.Quick {
		return quick
	}
	return full
}

// sample is one round of one side: its figure, and what else was seen.
type sample struct {
	Value float64            `json:"value"`
	More  map[string]float64 `json:"more,omitempty"`
}

// side is all rounds of one side, in order, and what they come to.
type side struct {
	Name   string   `json:"name"`
	Rounds []sample `json:"rounds"`
	Median float64  `json:"median"`
	Spread float64  `json:"spread"` // (largest - smallest) / median
	Noisy  bool     `json:"noisy"`
}

// machine is where a line was measured, and with which versions.
type machine struct {
	CPUs  int               `json:"cpus"`
	Go    string            `json:"go"`
	Redis string            `json:"redis"`
	Peers map[string]string `json:"peers"`
	Date  string            `json:"date"`
}

func thisMachine() machine {
	return machine{
		CPUs:  runtime.NumCPU(),
		Go:    runtime.Version(),
		Peers: peerVersions(),
		Date:  time.Now().UTC().Format(time.DateOnly),
	}
}

// line is one JSON line: one scenario in one case, with both raw sides.
type line struct {
	Scenario string    `json:"scenario"`
	Case     string    `json:"case"`
	Layer    string    `json:"layer"` // of Picket: engine, http, or script
	Unit     string    `json:"unit"`  // of every figure of both sides
	Fsync    string    `json:"fsync"`
	Plan     plan      `json:"plan"`
	Sides    []side    `json:"sides,omitempty"` // ours first
	Ratio    float64   `json:"ratio,omitempty"`
	Better   string    `json:"better,omitempty"` // a ratio that is more, or less
	Must     *goal     `json:"-"`                // goals are for the log
	Moonshot *goal     `json:"-"`
	LeftOut  string    `json:"leftOut,omitempty"` // why there are no figures
	Profile  []profile `json:"profile,omitempty"`
	Seconds  float64   `json:"seconds"` // this line took
	Machine  machine   `json:"machine"`
}

// goal is a bound on the ratio, or on the median of our side.
type goal struct {
	Of      string  `json:"of"` // ratio, or ours
	AtLeast float64 `json:"atLeast,omitempty"`
	AtMost  float64 `json:"atMost,omitempty"`
}

func atLeast(ratio float64) *goal { return &goal{Of: "ratio", AtLeast: ratio} }
func atMost(ratio float64) *goal  { return &goal{Of: "ratio", AtMost: ratio} }
func under(value float64) *goal   { return &goal{Of: "ours", AtMost: value} }
func over(value float64) *goal    { return &goal{Of: "ours", AtLeast: value} }

// met reports whether a line reaches a goal.
func (l line) met(g *goal) bool {
	v := l.Ratio
	if g.Of == "ours" {
		v = l.Sides[0].Median
	}
	if g.AtLeast != 0 {
		return v >= g.AtLeast
	}
	return v <= g.AtMost
}

func (g *goal) text(unit string) string {
	if g == nil {
		return "-"
	}
	sign, v := "≥ ", g.AtLeast
	if g.AtMost != 0 {
		sign, v = "≤ ", g.AtMost
	}
	if g.Of == "ratio" {
		return sign + "x" + strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
	}
	return sign + figure(v) + " " + unit
}

// compare is the ratio of two sides. ours over theirs for a rate, theirs over
// ours for a time: more is better either way. growth is ours over theirs for a
// time, so that 1 is flat.
type compare string

const (
	rate   compare = "rate"
	faster compare = "faster"
	growth compare = "growth"
)

func (c compare) ratio(ours, theirs side) float64 {
	if c == faster {
		ours, theirs = theirs, ours
	}
	if theirs.Median == 0 {
		return 0
	}
	return round(ours.Median/theirs.Median, 2)
}

// better is which ratios are better: more, or less.
func (c compare) better() string {
	if c == growth {
		return "less"
	}
	return "more"
}

func sideOf(name string, samples []sample) side {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = s.Value
	}
	slices.Sort(values)
	median := middle(values)
	spread := 0.0
	if median > 0 {
		spread = (values[len(values)-1] - values[0]) / median
	}
	return side{Name: name, Rounds: samples, Median: median, Spread: round(spread, 3), Noisy: spread > noisySpread}
}

// middle is the median of sorted values.
func middle(sorted []float64) float64 {
	mid := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[mid-1] + sorted[mid]) / 2
	}
	return sorted[mid]
}

// spread is the name of a side with the spread of its rounds.
func (s side) spread() string {
	noisy := ""
	if s.Noisy {
		noisy = ", noisy"
	}
	return fmt.Sprintf("%s (%.0f %%%s)", s.Name, s.Spread*100, noisy)
}

// figure writes a number with three digits or more.
func figure(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func round(v float64, decimals int) float64 {
	p := math.Pow10(decimals)
	return math.Round(v*p) / p
}

// times are durations of single calls, in the order they were made.
type times []float64 // microseconds

func (t *times) add(d time.Duration) { *t = append(*t, float64(d)/float64(time.Microsecond)) }

// at is the q-quantile, q from 0 to 1.
func (t times) at(q float64) float64 {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// quantiles is a round of single calls by one of its quantiles; the others go
// beside it.
func quantiles(t times, q float64) sample {
	return sample{Value: round(t.at(q), 3), More: map[string]float64{
		"p50": round(t.at(0.5), 3), "p90": round(t.at(0.9), 3), "p99": round(t.at(0.99), 3), "calls": float64(len(t)),
	}}
}
