package settings

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// ToolsShape is everything that may stand under tools in picket.yaml.
func ToolsShape() toolShape {
	env := leaf("the variable of the server's environment that holds it", checkEnvName)
	return toolShape{
		keys: map[string]toolShape{
			"prices": namedBy(checkPriceName, toolShape{
				keys: map[string]toolShape{
					"call": leaf("dollars a call", checkDollars),
					"per_unit": namedBy(checkUnit,
						leaf("dollars for each byte of the answer, second of the call or token of the result",
							checkDollars)),
					"max": leaf("dollars a call costs at most; reserved before it, needed with per_unit",
						checkDollars),
					"charge_on": leaf("dispatch: every call that left costs; success: only one that did not fail",
						checkChargeOn),
				},
			}),
			"models": namedBy(nil, toolShape{keys: map[string]toolShape{
				"input":       leaf("dollars a million tokens", checkDollars),
				"output":      leaf("dollars a million tokens", checkDollars),
				"cache_read":  leaf("dollars a million tokens; default: as input", checkDollars),
				"cache_write": leaf("dollars a million tokens; default: as input", checkDollars),
			}}),
			"http_request": {keys: map[string]toolShape{
				"allow":     listOf("hosts, or host:port, that may be called", checkAllowed),
				"timeout":   leaf("how long a call may take", checkCallTime),
				"max_bytes": leaf("how much of an answer is read", checkCount),
			}},
			"sql": namedBy(checkShortName, toolShape{keys: map[string]toolShape{
				"url_env": env,
				"marks":   leaf("table of the high-water marks", checkTable),
				"timeout": leaf("how long a call may take", checkCallTime),
			}}),
			"upstreams": namedBy(checkUpstreamName, toolShape{
				keys: map[string]toolShape{
					"url":     leaf("URL of an MCP server", checkURL),
					"headers": namedBy(checkHeader, toolShape{keys: map[string]toolShape{"env": env}}),
					"command": listOf("program and arguments of an MCP server that speaks over its standard streams",
						checkArgument),
					"env":     listOf("names of variables it gets beside the usual ones", checkEnvName),
					"timeout": leaf("how long a call of one of its tools may take", checkCallTime),
				},
			}),
			"llm": {keys: map[string]toolShape{
				"anthropic": {keys: map[string]toolShape{"url": leaf("URL of the API", checkURL), "key_env": env}},
				"openai":    {keys: map[string]toolShape{"url": leaf("URL of the API", checkURL), "key_env": env}},
			}},
		},
	}
}

func checkDollars(text string) error {
	m, err := budget.ParseMoney(strings.TrimPrefix(text, "$"))
	if err == nil && m < 0 {
		err = fmt.Errorf("%s is below zero", term.ShellQuote(text))
	}
	return err
}

func checkUnit(text string) error {
	return checkOneOf(text, string(budget.UnitByte), string(budget.UnitSecond), string(budget.UnitResultToken))
}

func checkChargeOn(text string) error {
	return checkOneOf(text, string(budget.ChargeOnDispatch), string(budget.ChargeOnSuccess))
}

var (
	priceName           = regexp.MustCompile(`^([A-Za-z0-9_.-]{1,128}\*?|\*)$`)
	shortName           = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,31}$`)
	upstreamNamePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,31}$`)
	tableNamePattern    = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,54}$`)
	envName             = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerNamePattern   = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
)

func checkPriceName(text string) error {
	if !priceName.MatchString(text) {
		return fmt.Errorf("%s is not a name of a tool; it may end in * for all that begin so", term.ShellQuote(text))
	}
	return nil
}

func checkShortName(text string) error {
	if !shortName.MatchString(text) {
		return fmt.Errorf("%s is not a name here: 1 to 32 letters, digits or -", term.ShellQuote(text))
	}
	return nil
}

func checkUpstreamName(text string) error {
	if !upstreamNamePattern.MatchString(text) {
		return fmt.Errorf("%s is not a name of an upstream: 1 to 32 letters, digits or _, a letter first",
			term.ShellQuote(text))
	}
	return nil
}

func checkTable(text string) error {
	if !tableNamePattern.MatchString(text) {
		return fmt.Errorf("%s is not a table name: write at most 55 lower-case letters, digits or _, with or without a schema, such as public.picket_fence", term.ShellQuote(text))
	}
	return nil
}

// checkEnvName takes the name of a variable. A secret itself must not stand in
// the file.
func checkEnvName(text string) error {
	if !envName.MatchString(text) {
		return errors.New("the name of an environment variable is expected; secrets do not stand in this file")
	}
	return nil
}

func checkHeader(text string) error {
	if !headerNamePattern.MatchString(text) {
		return fmt.Errorf("%s is not a name of a header", term.ShellQuote(text))
	}
	return nil
}

// checkAllowed takes host, host:port and *.domain.
func checkAllowed(text string) error {
	u, err := url.Parse("//" + text)
	if err != nil || u.Host != text || u.Hostname() == "" || u.User != nil {
		return fmt.Errorf("%s is neither a host nor host:port", term.ShellQuote(text))
	}
	return nil
}

func checkCallTime(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > picket.MaxExternalCall*time.Second {
		return fmt.Errorf("%s is not a duration from 1s to %ds", term.ShellQuote(text), picket.MaxExternalCall)
	}
	return nil
}
