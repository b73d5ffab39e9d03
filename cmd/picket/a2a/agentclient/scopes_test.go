package agentclient

import (
	"slices"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
)

// The card of an agent can be read whichever form the scopes of its security requirements have. Anything else is left
// to the reader of cards.
func TestTheScopesOfACardAreReadInEachForm(t *testing.T) {
	for _, scopes := range []string{`{"list":["read"]}`, `["read"]`} {
		card, err := agentcard.DefaultCardParser(bareScopes([]byte(`{"name":"x","skills":[{"id":"s",
			"securityRequirements":[{"schemes":{"oauth":` + scopes + `}}]}],
			"securityRequirements":[{"schemes":{"oauth":` + scopes + `}},{"schemes":{"key":{}}}]}`)))
		if err != nil {
			t.Fatal(err)
		}
		required, ofSkill := card.SecurityRequirements, card.Skills[0].SecurityRequirements
		if len(required) != 2 || !slices.Equal(required[0]["oauth"], []string{"read"}) {
			t.Errorf("%s: the card requires %v", scopes, required)
		}
		if _, key := required[1]["key"]; !key {
			t.Errorf("%s: the second way is %v", scopes, required[1])
		}
		if len(ofSkill) != 1 || !slices.Equal(ofSkill[0]["oauth"], []string{"read"}) {
			t.Errorf("%s: the skill requires %v", scopes, ofSkill)
		}
	}
	for _, other := range []string{``, `[`, `[]`, `"x"`, `null`, `{"securityRequirements":3,"skills":{"a":1}}`,
		`{"securityRequirements":[{"schemes":{"a":7}}]}`} {
		if _, err := agentcard.DefaultCardParser(bareScopes([]byte(other))); err == nil && other != `null` {
			t.Errorf("%s is read as a card", other)
		}
	}
}
