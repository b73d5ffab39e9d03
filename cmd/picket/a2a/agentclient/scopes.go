package agentclient

import stdjson "encoding/json"

// bareScopes is a card whose security requirements have their scopes as bare arrays, as the official Go library reads
// them. In the JSON of the specification, they are objects with a list. A card that is not JSON stays as it is.
func bareScopes(card []byte) []byte {
	var members map[string]stdjson.RawMessage
	if stdjson.Unmarshal(card, &members) != nil {
		return card
	}
	bareRequirements(members)
	var skills []map[string]stdjson.RawMessage
	if stdjson.Unmarshal(members["skills"], &skills) == nil && skills != nil {
		for _, skill := range skills {
			bareRequirements(skill)
		}
		members["skills"] = encoded(skills)
	}
	return encoded(members)
}

// bareRequirements changes the security requirements of a card or a skill. Those of another form stay as they are.
func bareRequirements(of map[string]stdjson.RawMessage) {
	var requirements []struct {
		Schemes map[string]stdjson.RawMessage `json:"schemes"`
	}
	if stdjson.Unmarshal(of["securityRequirements"], &requirements) != nil || requirements == nil {
		return
	}
	for _, r := range requirements {
		for name, raw := range r.Schemes {
			var scopes struct {
				List []string `json:"list"`
			}
			if stdjson.Unmarshal(raw, &scopes) == nil {
				r.Schemes[name] = encoded(append([]string{}, scopes.List...))
			}
		}
	}
	of["securityRequirements"] = encoded(requirements)
}

// encoded is the JSON of a value that was read from JSON.
func encoded(v any) stdjson.RawMessage {
	raw, err := stdjson.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
