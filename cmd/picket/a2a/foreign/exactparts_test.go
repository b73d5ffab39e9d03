package foreign

import (
	stdjson "encoding/json"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// What a worker passes on, in either direction, has the digits that it was written with.
func TestNumbersKeepTheirDigits(t *testing.T) {
	const data = `{"n":12345678901234567890}`
	const parts = `{"parts":[{"data":` + data + `},{"text":"x","data":null}]}`
	for _, raw := range []picket.RawJSON{picket.RawJSON(data), picket.RawJSON(parts)} {
		sent, err := stdjson.Marshal(partsIn(raw))
		if err != nil || !strings.Contains(string(sent), `{"data":`+data+`}`) {
			t.Errorf("%s is sent as %s; %v", raw, sent, err)
		}
	}
	message := picket.Message{Type: "a2a", Data: picket.RawJSON(`{"message":` + parts + `}`)}
	sent, err := stdjson.Marshal(messageParts(message))
	if err != nil || string(sent) != `[{"data":`+data+`},{"text":"x"}]` {
		t.Errorf("a message is sent as %s; %v", sent, err)
	}
	for _, answer := range []string{
		`{"jsonrpc":"2.0","id":"1","result":{"artifacts":[` + parts + `]}}`,
		`{"artifacts":[` + parts + `],"status":{"message":{"parts":[{"text":"no"}]}}}`,
		`{"result":{"status":{"message":` + parts + `}}}`,
		`{"result":{"message":` + parts + `}}`,
	} {
		got, err := exactResult([]byte(answer))
		output, bad := outputOf(got)
		if err != nil || bad != nil || string(output) != `{"parts":[{"data":`+data+`},{"text":"x"}]}` {
			t.Errorf("%s: %s; %v, %v", answer, output, err, bad)
		}
	}
	for _, answer := range []string{`{"result":{"artifacts":[{"parts":[{}]}]}}`, `{"artifacts":7}`, `[`,
		`{"message":{"parts":[{"text":"a","url":"https://b"}]}}`} {
		if got, err := exactResult([]byte(answer)); err == nil {
			t.Errorf("%s: %v", answer, got)
		}
	}
}
