package main

import (
	"strings"

	"github.com/picket-dev/picket/budget"
)

// priceList is what picket.yaml says that calls cost.
func (s settings) priceList() (*budget.PriceList, error) {
	tools, models := map[string]budget.Price{}, map[string]budget.TokenPrice{}
	for _, name := range s.namesUnder("prices") {
		p := budget.Price{
			Call: s.dollars("prices", name, "call"), Max: s.dollars("prices", name, "max"),
			ChargeOn: budget.ChargeOn(s.toolValue("prices", name, "charge_on").text),
		}
		for _, unit := range s.namesUnder("prices", name, "per_unit") {
			if p.PerUnit == nil {
				p.PerUnit = map[budget.Unit]budget.Money{}
			}
			p.PerUnit[budget.Unit(unit)] = s.dollars("prices", name, "per_unit", unit)
		}
		tools[name] = p
	}
	for _, name := range s.namesUnder("models") {
		models[name] = budget.TokenPrice{
			Input: s.dollars("models", name, "input"), Output: s.dollars("models", name, "output"),
			CacheRead: s.dollars("models", name, "cache_read"), CacheWrite: s.dollars("models", name, "cache_write"),
		}
	}
	list, err := budget.NewPriceList(tools, models)
	if err != nil {
		return nil, usageError("tools: %v", err)
	}
	return list, nil
}

// dollars reads a value that checkDollars has checked.
func (s settings) dollars(path ...string) budget.Money {
	m, _ := budget.ParseMoney(strings.TrimPrefix(s.toolValue(path...).text, "$"))
	return m
}

// checkedPrices is the price list, once everything under tools is checked where one
// key depends on another.
func checkedPrices(s settings) (*budget.PriceList, error) {
	for _, name := range s.namesUnder("prices") {
		if err := s.checkPrice(name); err != nil {
			return nil, err
		}
	}
	for _, name := range s.namesUnder("models") {
		for _, key := range []string{"input", "output"} {
			if s.toolValue("models", name, key).items == nil {
				return nil, usageError("%s: tools.models.%s needs %s: dollars a million tokens",
					s.toolValue("models", name).origin, name, key)
			}
		}
	}
	for _, name := range s.namesUnder("upstreams") {
		if err := s.checkUpstream(name); err != nil {
			return nil, err
		}
	}
	if name, why := upstreamNames(s.namesUnder("upstreams")); why != nil {
		err := usageError("%s: tools.upstreams.%s: %v", s.toolValue("upstreams", name).origin, name, why)
		err.Remedy = "Choose another name for it; prices and agents know its tools by that name."
		return nil, err
	}
	for _, name := range s.namesUnder("sql") {
		if s.toolValue("sql", name, "url_env").items == nil {
			return nil, usageError("%s: tools.sql.%s needs url_env, the variable that holds the database's URL",
				s.toolValue("sql", name).origin, name)
		}
	}
	return s.priceList()
}

// checkPrice: what a call may cost at most has to be known before it is made.
func (s settings) checkPrice(name string) error {
	where := s.toolValue("prices", name).origin
	most, units := s.toolValue("prices", name, "max"), s.namesUnder("prices", name, "per_unit")
	switch {
	case s.toolValue("prices", name, "call").items == nil && len(units) == 0:
		err := usageError("%s: tools.prices.%s has no price", where, name)
		err.Remedy = "Give call, such as call: 0.001; a free tool has call: 0."
		return err
	case len(units) > 0 && most.items == nil:
		err := usageError("%s: tools.prices.%s has per_unit and no max", where, name)
		err.Remedy = "Give max: what a call uses is not known before it is made, and max is what is reserved."
		return err
	case most.items != nil && s.dollars("prices", name, "max") < s.dollars("prices", name, "call"):
		return usageError("%s: tools.prices.%s.max is below its call", most.origin, name)
	}
	return nil
}

// checkUpstream: an MCP server is reached by URL or started, not both.
func (s settings) checkUpstream(name string) error {
	where := s.toolValue("upstreams", name).origin
	byURL, started := s.toolValue("upstreams", name, "url").items != nil,
		len(s.toolValue("upstreams", name, "command").items) > 0
	switch {
	case byURL == started:
		err := usageError("%s: tools.upstreams.%s needs either url or command", where, name)
		err.Remedy = "url is where an MCP server listens; command starts one that speaks over its standard streams."
		return err
	case started && len(s.namesUnder("upstreams", name, "headers")) > 0:
		return usageError("%s: tools.upstreams.%s: headers have no meaning with command", where, name)
	case byURL && s.toolValue("upstreams", name, "env").items != nil:
		return usageError("%s: tools.upstreams.%s: env has no meaning with url", where, name)
	}
	for _, h := range s.namesUnder("upstreams", name, "headers") {
		if s.toolValue("upstreams", name, "headers", h, "env").items == nil {
			return usageError("%s: the header %s needs env, the variable that holds its value",
				s.toolValue("upstreams", name, "headers", h).origin, h)
		}
	}
	return nil
}
