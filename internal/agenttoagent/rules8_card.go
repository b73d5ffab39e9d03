package agenttoagent

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/internal/conformance"
)

// ask reads the card again.
func (t *Trial) ask(headers ...string) *answer {
	return t.Send(conformance.Request{By: t.s.cardBy, Secret: t.s.Keys[t.s.cardBy], KeyHeader: t.s.keyHeader,
		Method: "GET", URL: t.s.Base + cardPath, Headers: headers})
}

// card reads the card again, and expects it.
func (t *Trial) card() fields {
	a := t.ExpectStatus(t.ask(), http.StatusOK)
	t.Assert(a.Body != nil, a, "a JSON object")
	return a.Body
}

// eachOf runs a check over each object of an array of the card.
func eachOf(path string, check func(t *Trial, one fields)) func(*Trial) {
	return func(t *Trial) {
		for _, one := range list(t.card(), path) {
			check(t, one)
		}
	}
}

// texts expects that members are texts that are not empty.
func texts(names ...string) func(*Trial, fields) {
	return func(t *Trial, one fields) {
		for _, name := range names {
			t.holds("the text "+name, text(one, name) != "")
		}
	}
}

// cardText expects a text of the card.
func cardText(name string) func(*Trial) { return func(t *Trial) { texts(name)(t, t.card()) } }

// schemeKinds are the members of a security scheme of which it has exactly one.
var schemeKinds = []string{"apiKeySecurityScheme", "httpAuthSecurityScheme", "oauth2SecurityScheme",
	"openIdConnectSecurityScheme", "mtlsSecurityScheme"}

// eachScheme runs a check over each security scheme of the card.
func eachScheme(check func(t *Trial, scheme fields)) func(*Trial) {
	return func(t *Trial) {
		for _, scheme := range object(t.card(), "securitySchemes") {
			f, _ := scheme.(fields)
			check(t, f)
		}
	}
}

// flag expects that a member is a boolean or absent.
func (t *Trial) flag(in fields, name string) {
	_, isBool := in[name].(bool)
	t.holds(name+" as true or false", in[name] == nil || isBool)
}

// Sections 4.4, 4.5 and 8: the card.
var cardChecks = checks{
	"4.4.1/name":        cardText("name"),
	"4.4.1/description": cardText("description"),
	"4.4.1/version":     cardText("version"),
	"4.4.1/interfaces": func(t *Trial) {
		t.holds("at least one interface", len(list(t.card(), "supportedInterfaces")) > 0)
	},
	"4.4.1/capabilities": func(t *Trial) { t.holds("an object", object(t.card(), "capabilities") != nil) },
	"4.4.1/modes": func(t *Trial) {
		card := t.card()
		for _, name := range []string{"defaultInputModes", "defaultOutputModes"} {
			modes := stringsIn(card[name])
			t.holds(name+" with media types", len(modes) > 0 && !slices.ContainsFunc(modes, func(m string) bool {
				return !mediaType.MatchString(m)
			}))
		}
	},
	"4.4.1/skills": func(t *Trial) {
		_, isArray := t.card()["skills"].([]any)
		t.holds("an array of skills", isArray)
	},
	"4.4.2/provider": func(t *Trial) {
		if p := object(t.card(), "provider"); p != nil {
			texts("url", "organization")(t, p)
		}
	},
	"4.4.3/flags": func(t *Trial) {
		for _, name := range []string{"streaming", "pushNotifications", "extendedAgentCard"} {
			t.flag(object(t.card(), "capabilities"), name)
		}
	},
	"4.4.4/extensions": eachOf("capabilities.extensions", func(t *Trial, e fields) {
		texts("uri")(t, e)
		t.flag(e, "required")
	}),
	"4.4.5/skill": eachOf("skills", texts("id", "name", "description")),
	"4.4.5/tags": eachOf("skills", func(t *Trial, s fields) {
		t.holds("at least one tag", len(stringsIn(s["tags"])) > 0)
	}),
	"4.4.5/unique": func(t *Trial) {
		seen := map[string]bool{}
		for _, s := range list(t.card(), "skills") {
			t.holds("an id that no other skill has", !seen[text(s, "id")])
			seen[text(s, "id")] = true
		}
	},
	"4.4.6/interface": eachOf("supportedInterfaces", texts("url", "protocolBinding", "protocolVersion")),
	"4.4.6/url": eachOf("supportedInterfaces", func(t *Trial, i fields) {
		if slices.Contains([]string{"JSONRPC", "HTTP+JSON"}, text(i, "protocolBinding")) {
			t.holds("an absolute URL", webAddress.MatchString(text(i, "url")))
		}
	}),
	"4.5.1/one-kind": eachScheme(func(t *Trial, scheme fields) {
		n := 0
		for _, k := range schemeKinds {
			if has(scheme, k) {
				n++
			}
		}
		t.ExpectEqual("number of kinds", n, 1)
	}),
	"4.5.2/api-key": eachScheme(func(t *Trial, scheme fields) {
		if s := object(scheme, "apiKeySecurityScheme"); s != nil {
			texts("name")(t, s)
			t.holds("query, header or cookie", slices.Contains([]string{"query", "header", "cookie"}, text(s,
				"location")))
		}
	}),
	"4.5.3/http": eachScheme(func(t *Trial, scheme fields) {
		if s := object(scheme, "httpAuthSecurityScheme"); s != nil {
			texts("scheme")(t, s)
		}
	}),
	"4.5/declared": func(t *Trial) {
		card := t.card()
		for _, requirement := range list(card, "securityRequirements") {
			for name := range object(requirement, "schemes") {
				t.holds("the scheme "+name, object(card, "securitySchemes")[name] != nil)
			}
		}
	},
	"4.5/scopes": eachOf("securityRequirements", func(t *Trial, requirement fields) {
		for name, scopes := range object(requirement, "schemes") {
			of, ok := scopes.(fields)
			if ok && has(of, "list") {
				_, ok = of["list"].([]any)
			}
			t.holds("an object with a list for "+name, ok)
		}
	}),
	"7.3/schemes": func(t *Trial) {
		t.holds("a security scheme", len(object(t.card(), "securitySchemes")) > 0)
	},
	"5.5/card-camel-case": func(t *Trial) { t.expectNames(t.card(), "names in camel case", camelCase) },
	"5.7/required-arrays": func(t *Trial) {
		for _, name := range []string{"supportedInterfaces", "defaultInputModes", "defaultOutputModes", "skills"} {
			v, _ := t.card()[name].([]any)
			t.holds(name+" with at least one element", len(v) > 0)
		}
	},
	"8.1/card": func(t *Trial) {
		a := t.ExpectStatus(t.ask(), http.StatusOK)
		t.Assert(strings.Contains(a.Header.Get("Content-Type"), "json"), a, "a content type of JSON")
	},
	"8.3.1/answers": each(func(c caller) { c.gets("ListTasks", fields{"pageSize": 1}) }),
	"8.4.2/signature": eachOf("signatures", func(t *Trial, s fields) {
		texts("protected", "signature")(t, s)
		raw, err := base64.RawURLEncoding.DecodeString(text(s, "protected"))
		var header fields
		if err == nil {
			err = json.Unmarshal(raw, &header)
		}
		t.holds("a protected header with alg and kid", err == nil && text(header, "alg") != "" && text(header,
			"kid") != "")
	}),
	"8.6.1/max-age": func(t *Trial) {
		t.holds("Cache-Control with max-age", strings.Contains(t.ask().Header.Get("Cache-Control"), "max-age="))
	},
	"8.6.1/etag": func(t *Trial) { t.holds("an ETag", t.ask().Header.Get("ETag") != "") },
	"8.6.1/etag-holds": func(t *Trial) {
		t.ExpectEqual("ETag", t.ask().Header.Get("ETag"), t.ask().Header.Get("ETag"))
	},
	"8.6/not-modified": func(t *Trial) {
		tag := t.ask().Header.Get("ETag")
		if tag == "" {
			t.NotRun("the card has no ETag")
		}
		t.ExpectStatus(t.ask("If-None-Match", tag), http.StatusNotModified)
	},
	"14.3/no-secrets": func(t *Trial) {
		raw := string(t.ask().Raw)
		for _, key := range []keyName{client, other} {
			t.Assert(t.s.Keys[key] == "" || !strings.Contains(raw, t.s.Keys[key]), t.Last, "a card without keys")
		}
	},
}
