package api_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A check of PromQL as our alerts use it: names, labels, their values, what a
// function may be asked of, and that brackets match.

var (
	promToken = regexp.MustCompile(`^(?:\s+|"[^"]*"|\[[0-9]+[smhd]\]|[a-zA-Z_][a-zA-Z0-9_]*|[0-9.]+|=~|!~|!=|==|>=|<=|[-+*/><=(){},])`)

	promFunctions = map[string]string{ // the kind of metric that each may be asked of
		"rate":               "counter",
		"increase":           "counter",
		"delta":              "gauge",
		"abs":                "gauge",
		"histogram_quantile": "",
		"sum":                "",
		"max":                "",
		"min":                "",
	}
	promOverRange    = []string{"rate", "increase", "delta"}
	promAggregations = []string{"sum", "max", "min"}
	promWords        = []string{"by", "and", "or", "unless"}
	everywhere       = []string{"instance", "job"}
)

// expression is one under way.
type expression struct {
	tokens []string
	there  map[string]*metricFamily
	open   []string // the function of each open bracket, "" for none
	used   []*metricFamily
	by     []grouping
}

// grouping are the labels that an aggregation keeps, and within how many brackets it stands.
type grouping struct {
	depth  int
	labels []string
}

// checkAlert returns the labels that are left for the words of an alert.
func checkAlert(text string, there map[string]*metricFamily) (kept []string, err error) {
	if !regexp.MustCompile(`[<>]|==`).MatchString(text) {
		return nil, errors.New("nothing is compared, so it is always on")
	}
	return checkExpression(text, there)
}

// checkExpression returns the labels of the result.
func checkExpression(text string, there map[string]*metricFamily) (kept []string, err error) {
	x := &expression{there: there}
	for rest := text; rest != ""; {
		token := promToken.FindString(rest)
		if token == "" {
			return nil, fmt.Errorf("cannot read %q", rest)
		}
		rest = rest[len(token):]
		if token = strings.TrimSpace(token); token != "" {
			x.tokens = append(x.tokens, token)
		}
	}
	for len(x.tokens) > 0 && err == nil {
		err = x.step()
	}
	switch {
	case err != nil:
		return nil, err
	case len(x.open) > 0:
		return nil, errors.New("a bracket is not closed")
	case len(x.used) == 0:
		return nil, errors.New("it names no metric")
	}
	return x.kept()
}

func (x *expression) next() (token string) {
	token, x.tokens = x.tokens[0], x.tokens[1:]
	return token
}

func (x *expression) peek() string {
	if len(x.tokens) == 0 {
		return ""
	}
	return x.tokens[0]
}

func (x *expression) step() error {
	token := x.next()
	switch {
	case token == "(":
		x.open = append(x.open, "")
	case token == ")":
		if len(x.open) == 0 {
			return errors.New("a bracket is closed that is not open")
		}
		x.open = x.open[:len(x.open)-1]
	case strings.HasPrefix(token, "picket_"):
		return x.metric(token)
	case token == "by":
		return errors.New("by stands before the bracket")
	case slices.Contains(promWords, token):
	case regexp.MustCompile(`^[a-z_]+$`).MatchString(token):
		return x.function(token)
	case strings.HasPrefix(token, "["):
		return errors.New("a range stands alone")
	}
	return nil
}

// function opens a call: name(…, or name by (…) (….
func (x *expression) function(name string) error {
	if _, known := promFunctions[name]; !known {
		return fmt.Errorf("there is no function %s", name)
	}
	aggregates := slices.Contains(promAggregations, name)
	if x.peek() == "by" {
		x.next()
		if err := x.grouping(); err != nil {
			return err
		}
		if !aggregates {
			return fmt.Errorf("%s does not group", name)
		}
	} else if aggregates {
		x.by = append(x.by, grouping{depth: len(x.open)}) // keeps nothing
	}
	if x.peek() != "(" {
		return fmt.Errorf("%s is not called", name)
	}
	x.next()
	x.open = append(x.open, name)
	return nil
}

func (x *expression) grouping() error {
	if x.peek() != "(" {
		return errors.New("by names no labels")
	}
	x.next()
	var labels []string
	for x.peek() != ")" {
		if x.peek() == "" {
			return errors.New("by is not closed")
		}
		if token := x.next(); token != "," {
			labels = append(labels, token)
		}
	}
	x.next()
	x.by = append(x.by, grouping{len(x.open), labels})
	return nil
}

// metric checks a selector: that there are such samples, and that the function
// around it suits its kind.
func (x *expression) metric(name string) error {
	family := x.there[name]
	kind := ""
	if family != nil {
		kind = family.kind
	} else {
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && x.there[base] != nil &&
				x.there[base].kind == "histogram" {
				family, kind = x.there[base], "counter"
			}
		}
	}
	if family == nil || kind == "histogram" {
		return fmt.Errorf("no scrape has %s", name)
	}
	x.used = append(x.used, family)
	if err := x.matchers(name, family); err != nil {
		return err
	}
	around := ""
	if len(x.open) > 0 {
		around = x.open[len(x.open)-1]
	}
	ranged := strings.HasPrefix(x.peek(), "[")
	if ranged {
		x.next()
	}
	if ranged != slices.Contains(promOverRange, around) {
		return fmt.Errorf("%s: a range belongs inside %v, and only there", name, promOverRange)
	}
	if slices.Contains(x.open, "histogram_quantile") &&
		(len(x.by) == 0 || !slices.Contains(x.by[len(x.by)-1].labels, "le")) {
		return errors.New("a quantile needs le")
	}
	if want := promFunctions[around]; want != "" && want != kind || kind == "counter" && want == "" {
		return fmt.Errorf("%s is a %s, and stands in %q", name, kind, around)
	}
	return nil
}

// matchers checks that each value asked for is one that a scrape shows.
func (x *expression) matchers(name string, family *metricFamily) error {
	if x.peek() != "{" {
		return nil
	}
	x.next()
	for x.peek() != "}" {
		if len(x.tokens) < 4 {
			return errors.New("a selector is not closed")
		}
		label, op, value := x.next(), x.next(), strings.Trim(x.next(), `"`)
		if x.peek() == "," {
			x.next()
		}
		if label != "le" && !slices.Contains(strings.Fields(family.labels), label) {
			return fmt.Errorf("%s has no label %s", name, label)
		}
		for _, v := range strings.Split(value, "|") {
			pair := label + `="` + v + `"`
			shown := slices.ContainsFunc(samples(family),
				func(s string) bool { return strings.HasPrefix(s, name+"{") && strings.Contains(s, pair) })
			if op != "=" && op != "=~" || !shown && pair != `status="500"` { // an answer that there never is
				return fmt.Errorf("no sample of %s has %s", name, pair)
			}
		}
	}
	x.next()
	return nil
}

func samples(family *metricFamily) (all []string) {
	for s := range family.values {
		all = append(all, s)
	}
	return all
}

// kept are the labels that a result has: those that its outermost aggregations have in common, or
// else those of its metrics.
func (x *expression) kept() ([]string, error) {
	var all []string
	buckets := false
	for _, m := range x.used {
		all = append(all, strings.Fields(m.labels)...)
		buckets = buckets || m.kind == "histogram"
	}
	all = append(all, everywhere...)
	for i, outer := range x.by {
		for _, l := range outer.labels {
			if !slices.Contains(all, l) && !(l == "le" && buckets) {
				return nil, fmt.Errorf("none of its metrics has the label %s", l)
			}
			for _, inner := range x.by[i+1:] {
				if inner.depth <= outer.depth {
					break
				}
				if !slices.Contains(inner.labels, l) {
					return nil, fmt.Errorf("an aggregation inside drops the label %s", l)
				}
			}
		}
	}
	if len(x.by) == 0 {
		return all, nil
	}
	outermost := slices.MinFunc(x.by, func(a, b grouping) int { return a.depth - b.depth }).depth
	var common []string
	first := true
	for _, by := range x.by {
		switch {
		case by.depth != outermost:
		case first:
			common, first = slices.Clone(by.labels), false
		default:
			common = slices.DeleteFunc(common, func(l string) bool { return !slices.Contains(by.labels, l) })
		}
	}
	return slices.DeleteFunc(common, func(l string) bool { return l == "le" }), nil
}
