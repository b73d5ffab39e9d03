package settings

import (
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// PriceList is what picket.yaml says that calls cost.
func (s Settings) PriceList() (*budget.PriceList, error) {
	tools, models := map[string]budget.Price{}, map[string]budget.TokenPrice{}
	for _, name := range s.NamesUnder("prices") {
		p := budget.Price{
			Call: s.dollars("prices", name, "call"), Max: s.dollars("prices", name, "max"),
			ChargeOn: budget.ChargeOn(s.ToolValue("prices", name, "charge_on").Text),
		}
		for _, unit := range s.NamesUnder("prices", name, "per_unit") {
			if p.PerUnit == nil {
				p.PerUnit = map[budget.Unit]budget.Money{}
			}
			p.PerUnit[budget.Unit(unit)] = s.dollars("prices", name, "per_unit", unit)
		}
		tools[name] = p
	}
	for _, name := range s.NamesUnder("models") {
		models[name] = budget.TokenPrice{
			Input: s.dollars("models", name, "input"), Output: s.dollars("models", name, "output"),
			CacheRead: s.dollars("models", name, "cache_read"), CacheWrite: s.dollars("models", name, "cache_write"),
		}
	}
	list, err := budget.NewPriceList(tools, models)
	if err != nil {
		return nil, exit.Usagef("tools: %v", err)
	}
	return list, nil
}

// dollars reads a value that checkDollars has checked.
func (s Settings) dollars(path ...string) budget.Money {
	m, _ := budget.ParseMoney(strings.TrimPrefix(s.ToolValue(path...).Text, "$"))
	return m
}

// CheckedPrices is the price list, once everything under tools is checked where one
// key depends on another.
func CheckedPrices(s Settings) (*budget.PriceList, error) {
	for _, name := range s.NamesUnder("prices") {
		if err := s.checkPrice(name); err != nil {
			return nil, err
		}
	}
	for _, name := range s.NamesUnder("models") {
		for _, key := range []string{"input", "output"} {
			if s.ToolValue("models", name, key).Items == nil {
				return nil, exit.Usagef("%s: tools.models.%s needs %s: dollars a million tokens",
					s.ToolValue("models", name).Origin, name, key)
			}
		}
	}
	for _, name := range s.NamesUnder("upstreams") {
		if err := s.checkUpstream(name); err != nil {
			return nil, err
		}
	}
	if name, why := picket.CheckUpstreamNames(s.NamesUnder("upstreams")); why != nil {
		err := exit.Usagef("%s: tools.upstreams.%s: %v", s.ToolValue("upstreams", name).Origin, name, why)
		err.Remedy = "Choose another name for it; prices and agents know its tools by that name."
		return nil, err
	}
	for _, name := range s.NamesUnder("sql") {
		if s.ToolValue("sql", name, "url_env").Items == nil {
			return nil, exit.Usagef("%s: tools.sql.%s needs url_env, the variable that holds the database's URL",
				s.ToolValue("sql", name).Origin, name)
		}
	}
	return s.PriceList()
}

// checkPrice: what a call may cost at most has to be known before it is made.
func (s Settings) checkPrice(name string) error {
	where := s.ToolValue("prices", name).Origin
	most, units := s.ToolValue("prices", name, "max"), s.NamesUnder("prices", name, "per_unit")
	switch {
	case s.ToolValue("prices", name, "call").Items == nil && len(units) == 0:
		err := exit.Usagef("%s: tools.prices.%s has no price", where, name)
		err.Remedy = "Give call, such as call: 0.001; a free tool has call: 0."
		return err
	case len(units) > 0 && most.Items == nil:
		err := exit.Usagef("%s: tools.prices.%s has per_unit and no max", where, name)
		err.Remedy = "Give max: what a call uses is not known before it is made, and max is what is reserved."
		return err
	case most.Items != nil && s.dollars("prices", name, "max") < s.dollars("prices", name, "call"):
		return exit.Usagef("%s: tools.prices.%s.max is below its call", most.Origin, name)
	}
	return nil
}

// checkUpstream: an MCP server is reached by URL or started, not both.
func (s Settings) checkUpstream(name string) error {
	where := s.ToolValue("upstreams", name).Origin
	byURL, started := s.ToolValue("upstreams", name, "url").Items != nil,
		len(s.ToolValue("upstreams", name, "command").Items) > 0
	switch {
	case byURL == started:
		err := exit.Usagef("%s: tools.upstreams.%s needs either url or command", where, name)
		err.Remedy = "url is where an MCP server listens; command starts one that speaks over its standard streams."
		return err
	case started && len(s.NamesUnder("upstreams", name, "headers")) > 0:
		return exit.Usagef("%s: tools.upstreams.%s: headers have no meaning with command", where, name)
	case byURL && s.ToolValue("upstreams", name, "env").Items != nil:
		return exit.Usagef("%s: tools.upstreams.%s: env has no meaning with url", where, name)
	}
	for _, h := range s.NamesUnder("upstreams", name, "headers") {
		if s.ToolValue("upstreams", name, "headers", h, "env").Items == nil {
			return exit.Usagef("%s: the header %s needs env, the variable that holds its value",
				s.ToolValue("upstreams", name, "headers", h).Origin, h)
		}
	}
	return nil
}
