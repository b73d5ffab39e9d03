package a2a

import (
	"slices"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
)

// The card of an agent can be read whichever form the scopes of its security requirements have. What is no card is
// left to the reader of cards.
func TestTheScopesOfACardAreReadInEachForm(t *testing.T) {
	for _, scopes := range []string{`{"list":["read"]}`, `["read"]`} {
		card, err := agentcard.DefaultCardParser(bareScopes([]byte(`{"name":"x","skills":[{"id":"s",
			"securityRequirements":[{"schemes":{"oauth":` + scopes + `}}]}],
			"securityRequirements":[{"schemes":{"oauth":` + scopes + `}},{"schemes":{"key":{}}}]}`)))
		if err != nil {
			t.Fatal(err)
		}
		if len(card.SecurityRequirements) != 2 || !slices.Equal(card.SecurityRequirements[0]["oauth"], []string{"read"}) {
			t.Errorf("%s: the card requires %v", scopes, card.SecurityRequirements)
		}
		if _, key := card.SecurityRequirements[1]["key"]; !key {
			t.Errorf("%s: the second way is %v", scopes, card.SecurityRequirements[1])
		}
		if own := card.Skills[0].SecurityRequirements; len(own) != 1 || !slices.Equal(own[0]["oauth"], []string{"read"}) {
			t.Errorf("%s: the skill requires %v", scopes, own)
		}
	}
	for _, other := range []string{``, `[`, `[]`, `"x"`, `null`, `{"securityRequirements":3,"skills":{"a":1}}`,
		`{"securityRequirements":[{"schemes":{"a":7}}]}`} {
		if _, err := agentcard.DefaultCardParser(bareScopes([]byte(other))); err == nil && other != `null` {
			t.Errorf("%s is read as a card", other)
		}
	}
}
