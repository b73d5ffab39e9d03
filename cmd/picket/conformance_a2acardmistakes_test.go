package main

import (
	"fmt"
	"net/http"
)

// ofCard changes the card.
func ofCard(name string, change func(card object), rules ...string) a2aMistake {
	return a2aMistake{name: name, rules: rules, answer: func(x *a2aExchange) {
		if x.op == "card" && x.res.StatusCode == http.StatusOK && x.whole != nil {
			change(x.whole)
		}
	}}
}

// without leaves a member of the card out.
func without(member string, rules ...string) a2aMistake {
	return ofCard("has no "+member+" in its card", func(card object) { delete(card, member) }, rules...)
}

// ofCardAnswer changes the answer with the card, after the suite has read it for itself.
func ofCardAnswer(name string, change func(x *a2aExchange), rules ...string) a2aMistake {
	return a2aMistake{name: name, rules: rules, answer: func(x *a2aExchange) {
		if x.op != "card" || x.res.StatusCode >= 400 {
			return
		}
		if x.seen["card"] != nil {
			change(x)
		}
		x.seen["card"] = true
	}}
}

// each changes each object of an array of the card.
func eachInCard(path string, change func(one object)) func(card object) {
	return func(card object) {
		list, _ := card[path].([]any)
		for _, one := range list {
			change(one.(object))
		}
	}
}

// capability sets a capability of the card.
func capability(name string, value any) func(card object) {
	return func(card object) { card["capabilities"].(object)[name] = value }
}

// schemes changes the security schemes of the card.
func schemes(change func(scheme object)) func(card object) {
	return func(card object) {
		all, _ := card["securitySchemes"].(object)
		for _, scheme := range all {
			change(scheme.(object))
		}
	}
}

func a2aCardMistakes() []a2aMistake {
	tags := 0
	return []a2aMistake{
		without("name", "4.4.1/name"), without("description", "4.4.1/description"), without("version", "4.4.1/version"),
		without("defaultInputModes", "4.4.1/modes", "5.7/required-arrays"), without("skills", "4.4.1/skills"),
		without("securitySchemes", "7.3/schemes", "4.5/declared"),
		ofCardAnswer("offers no interfaces", func(x *a2aExchange) { x.whole["supportedInterfaces"] = []any{} },
			"4.4.1/interfaces", "5.7/required-arrays"),
		ofCardAnswer("has no capabilities", func(x *a2aExchange) { delete(x.whole, "capabilities") },
			"4.4.1/capabilities"),
		ofCard("has modes that are not media types", func(card object) { card["defaultOutputModes"] = []any{"a/b/c"} },
			"4.4.1/modes"),
		ofCard("has a provider without an address",
			func(card object) { card["provider"] = object{"organization": "x"} },
			"4.4.2/provider"),
		ofCard("says yes instead of true", capability("extendedAgentCard", "yes"), "4.4.3/flags"),
		ofCard("has extensions without names", capability("extensions", []any{object{"required": false}}),
			"4.4.4/extensions"),
		ofCard("has skills without descriptions", eachInCard("skills", func(s object) { delete(s, "description") }),
			"4.4.5/skill"),
		ofCard("has skills without tags", eachInCard("skills", func(s object) { s["tags"] = []any{} }), "4.4.5/tags"),
		ofCard("has a skill twice", func(card object) {
			list := card["skills"].([]any)
			card["skills"] = append(list, list[0])
		}, "4.4.5/unique"),
		ofCardAnswer("has interfaces without versions", func(x *a2aExchange) {
			eachInCard("supportedInterfaces", func(i object) { delete(i, "protocolVersion") })(x.whole)
		}, "4.4.6/interface"),
		ofCardAnswer("has relative URLs", func(x *a2aExchange) {
			eachInCard("supportedInterfaces", func(i object) { i["url"] = "/a2a" })(x.whole)
		}, "4.4.6/url"),
		ofCard("has versions with patch numbers", eachInCard("supportedInterfaces", func(i object) {
			i["protocolVersion"] = "1.0.0"
		}), "3.6/card"),
		ofCard("has a scheme of two kinds", schemes(func(s object) { s["mtlsSecurityScheme"] = object{} }),
			"4.5.1/one-kind"),
		ofCard("takes the key in the body", schemes(func(s object) {
			s["httpAuthSecurityScheme"] = object{"description": "no scheme"}
			s["apiKeySecurityScheme"].(object)["location"] = "body"
		}), "4.5.2/api-key", "4.5.3/http"),
		ofCard("requires a scheme that it does not have", func(card object) {
			card["securityRequirements"] = []any{object{"schemes": object{"other": object{}}}}
		}, "4.5/declared"),
		ofCard("has the scopes of a requirement as an array", func(card object) {
			card["securityRequirements"] = []any{object{"schemes": object{"apiKey": []any{}}}}
		}, "4.5/scopes"),
		ofCard("has names in snake case in its card", func(card object) { card["icon_url"] = "x" },
			"5.5/card-camel-case"),
		ofCard("has a signature without an algorithm", func(card object) {
			card["signatures"] = []any{object{"protected": "e30", "signature": "x"}}
		}, "8.4.2/signature"),
		ofCardAnswer("has a card of another type", func(x *a2aExchange) {
			x.res.Header.Set("Content-Type", "text/plain")
		}, "8.1/card"),
		ofCardAnswer("says nothing about caches", func(x *a2aExchange) {
			x.res.Header.Del("Cache-Control")
			x.res.Header.Del("ETag")
		}, "8.6.1/max-age", "8.6.1/etag"),
		ofCardAnswer("has another tag each time", func(x *a2aExchange) {
			tags++
			x.res.Header.Set("ETag", fmt.Sprintf(`"%d"`, tags))
		}, "8.6.1/etag-holds", "8.6/not-modified"),
		{name: "sends the card again", rules: []string{"8.6/not-modified"},
			request: func(x *a2aExchange) *http.Response {
				x.r.Header.Del("If-None-Match")
				return nil
			}},
		{name: "shows the key in its card", rules: []string{"14.3/no-secrets"}, answer: func(x *a2aExchange) {
			if x.op == "card" && x.res.StatusCode == http.StatusOK && x.whole != nil {
				x.whole["description"] = x.r.Header.Get("X-API-Key")
			}
		}},
		ofCard("requires an extension and does not check it", capability("extensions",
			[]any{object{"uri": "urn:x", "required": true}}), "3.3.4/extension"),
		ofCard("streams and does not say it", capability("streaming", false), "3.3.4/streaming"),
		ofCard("offers an extended card that it does not have", capability("extendedAgentCard", true), "3.1.11/card"),
		{name: "shows everybody the extended card", rules: []string{"13.3/extended-card-key"},
			request: func(x *a2aExchange) *http.Response {
				if key := x.r.Header.Get("X-API-Key"); key != "" {
					x.seen["key"] = key
				}
				if key, ok := x.seen["key"].(string); ok && x.op == "GetExtendedAgentCard" {
					x.r.Header.Set("X-API-Key", key)
				}
				return nil
			},
			answer: func(x *a2aExchange) {
				if x.op == "card" && x.res.StatusCode == http.StatusOK && x.whole != nil {
					capability("extendedAgentCard", true)(x.whole)
				}
				forgive(x)
			}},
		ofCard("is not a Picket server", capability("extensions", []any{}), "3.6.2/empty"),
	}
}
