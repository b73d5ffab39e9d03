package toolproxy

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// CheckNoLeaseToken refuses to send the lease token or the session capability away, because
// a receiver could act as the run or the session. sent are JSON texts. The error is a
// *picket.Error. The token is found in every spelling of JSON and of URLs, and in base64, as
// in a header with a user and a password. A caller that hides the token in another way is not
// stopped.
func CheckNoLeaseToken(held picket.LeaseCredential, sent ...jsontext.Value) error {
	prefix, id, name := picket.LeaseTokenPrefix, held.TaskID, "lease token"
	if held.OfSession() {
		prefix, id, name = picket.SessionCapabilityPrefix, held.PromptID, "session capability"
	}
	_, id, _ = strings.Cut(id, "_")
	if held.SessionID != "" {
		id = held.SessionID
	}
	if id == "" {
		return nil
	}
	token := prefix + held.Namespace + "." + id
	for _, value := range sent {
		if anyString(value, func(s string) bool { return containsToken(s, token) }) {
			return picket.Invalid("", "Leave it out; the tools know who you are.",
				"what is sent holds the %s, which must not leave", name)
		}
	}
	return nil
}

// anyString reports whether wanted holds for any string or name in a JSON text. A text
// that is not JSON is one string.
func anyString(value jsontext.Value, wanted func(string) bool) bool {
	in := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	for {
		token, err := in.ReadToken()
		if err != nil {
			return wanted(string(value))
		}
		if token.Kind() == '"' && wanted(token.String()) {
			return true
		}
	}
}

// escapedLetter is a letter as JSON within a string, or a URL, may write it.
var escapedLetter = lazyregexp.New(`\\u00[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}`)

func containsToken(text, token string) bool {
	text = escapedLetter().ReplaceAllStringFunc(text, func(letter string) string {
		n, err := strconv.ParseUint(letter[len(letter)-2:], 16, 8)
		if err != nil {
			return letter
		}
		return string(rune(n))
	})
	return strings.Contains(text, token) ||
		slices.ContainsFunc(base64Forms(token), func(part string) bool { return strings.Contains(text, part) })
}

// base64Forms returns the parts of a token's base64 that do not depend on the text around
// it, one for each of its three possible offsets.
func base64Forms(token string) (parts []string) {
	for _, letters := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			all := letters.EncodeToString([]byte(strings.Repeat("\x00", before) + token))
			from, to := (8*before+5)/6, 8*(before+len(token))/6
			parts = append(parts, all[from:to])
		}
	}
	return parts
}
