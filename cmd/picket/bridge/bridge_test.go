package bridge

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// bridgeTo is a bridge to a server with this handler.
func bridgeTo(t *testing.T, handle http.HandlerFunc, out io.Writer) *mcpBridge {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	b := newMCPBridge(server.URL, "pkl_any", "")
	b.out, b.err = out, io.Discard
	return b
}

// answerTo passes in over a bridge and returns its lines of output.
func answerTo(t *testing.T, in string, handle http.HandlerFunc) []string {
	t.Helper()
	var out strings.Builder
	if err := bridgeTo(t, handle, &out).run(t.Context(), strings.NewReader(in+"\n")); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// body answers every request with a status, a kind and a body. If cut is true, the connection breaks
// after the body, and before the end of the response.
func body(status int, kind, text string, cut bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
		if cut {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

// Whatever a server sends or does not send, a request gets exactly one answer, and no other request
// gets an answer for it.
func TestEachRequestGetsOneAnswer(t *testing.T) {
	const (
		stream, object = "text/event-stream", "application/json"
		good           = `{"jsonrpc":"2.0","id":7,"result":"good"}`
		bad            = `{"jsonrpc":"2.0","id":7,"result":"bad"}`
		other          = `{"jsonrpc":"2.0","id":8,"result":"bad"}`
		note           = `{"jsonrpc":"2.0","method":"notifications/message","params":5}`
		unanswered     = "the connection ended before the answer"
		repeat         = "call it again with the same idempotency key"
	)
	large := strings.Repeat(" ", maxMCPMessage)
	for name, test := range map[string]struct {
		handle http.HandlerFunc
		want   string
		notes  int
	}{
		"stream":                       {body(200, stream, "data: "+good+"\n\n", false), "good", 0},
		"stream cut after the answer":  {body(200, stream, "data: "+good+"\n\n", true), "good", 0},
		"stream cut before the answer": {body(200, stream, "data: "+note+"\n\n", true), unanswered, 1},
		"stream cut in the answer":     {body(200, stream, "data: "+good[:20], true), unanswered, 0},
		"stream without the answer":    {body(200, stream, "", false), unanswered, 0},
		"stream with two answers":      {body(200, stream, "data: "+good+"\n\ndata: "+bad+"\n\n", false), "good", 0},
		"stream with another answer":   {body(200, stream, "data: "+other+"\n\n", false), unanswered, 0},
		"stream with both answers":     {body(200, stream, "data: "+other+"\n\ndata: "+good+"\n\n", false), "good", 0},
		"stream with a batch":          {body(200, stream, "data: ["+note+","+good+","+bad+"]\n\n", false), "good", 1},
		"stream with a long event":     {body(200, stream, "data: "+large, false), "too long", 0},
		"object":                       {body(200, object, good, false), "good", 0},
		"object with another spelling": {body(200, object, strings.Replace(good, "7", "7.0", 1), false), "good", 0},
		"object of another request":    {body(200, object, other, false), repeat, 0},
		"object without an id":         {body(200, object, `{"error":{"message":"why"}}`, false), "why", 0},
		"object that is cut":           {body(200, object, good[:20], true), unanswered, 0},
		"object that is too large":     {body(200, object, good+large, false), "8388608 bytes", 0},
		"object that is a request":     {body(200, object, note, false), repeat, 1},
		"no object":                    {body(200, object, "<p>", false), "<p>", 0},
		"no object and a status":       {body(502, object, "<p>", false), "answered 502: <p>", 0},
		"object with a status":         {body(400, object, good, false), "good", 0},
		"no text":                      {body(200, object, "\xff\xfe", false), repeat, 0},
		"empty object":                 {body(200, object, "", false), "answered 200 without a message", 0},
		"no body and 200":              {body(200, "", "", false), "answered 200 without a message", 0},
		"no body and 202":              {body(202, object, "", false), "answered 202 without a message", 0},
		"no body and 204":              {body(204, "", "", false), "answered 204 without a message", 0},
		"page":                         {body(200, "text/html", good, false), "answered 200 without a message", 0},
	} {
		for _, method := range []string{"tools/call", "tools/list"} {
			t.Run(name+"/"+method, func(t *testing.T) {
				lines := answerTo(t, `{"jsonrpc":"2.0","id":7,"method":"`+method+`"}`, test.handle)
				all := len(lines)
				lines = slices.DeleteFunc(lines, func(line string) bool { return line == note })
				if len(lines) != 1 || all-len(lines) != test.notes {
					t.Fatalf("got %q and %d notifications, want one answer and %d", lines, all-len(lines), test.notes)
				}
				var answer struct {
					ID float64 `json:"id"`
				}
				if err := json.Unmarshal([]byte(lines[0]), &answer); err != nil || answer.ID != 7 ||
					!strings.Contains(lines[0], test.want) {
					t.Errorf("%v: got %s, want %q", err, lines[0], test.want)
				}
			})
		}
	}
}

// A request with the id of an unanswered one is refused without an id. After the answer, the id can
// be used again, even while the response to the first request goes on.
func TestIDOfAnUnansweredRequest(t *testing.T) {
	answer, end := make(chan bool), make(chan bool)
	fromBridge, out := io.Pipe()
	b := bridgeTo(t, func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			Method string `json:"method"`
		}
		_ = json.UnmarshalRead(r.Body, &m)
		w.Header().Set("Content-Type", "text/event-stream")
		if m.Method == "slow" {
			<-answer
			defer func() { <-end }()
		}
		fmt.Fprintf(w, "data: {\"id\":1,\"result\":%q}\n\n", m.Method)
		_ = http.NewResponseController(w).Flush()
	}, out)
	in, toBridge := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.run(t.Context(), in) }()
	lines := bufio.NewScanner(fromBridge)
	say := func(method string) {
		t.Helper()
		if _, err := fmt.Fprintf(toBridge, "{\"id\":1,\"method\":%q}\n", method); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want string) {
		t.Helper()
		if lines.Scan(); lines.Text() != want {
			t.Errorf("got %s, want %s", lines.Text(), want)
		}
	}
	say("slow")
	say("second")
	hear(`{"error":{"code":-32600,"message":"an earlier request with the id 1 has no answer yet"},` +
		`"id":null,"jsonrpc":"2.0"}`)
	answer <- true
	hear(`{"id":1,"result":"slow"}`)
	say("third")
	hear(`{"id":1,"result":"third"}`)
	end <- true
	toBridge.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The messages of a batch are passed on one by one. Each of its requests gets one answer.
func TestBatch(t *testing.T) {
	got := make(chan string, 10)
	lines := answerTo(t, `[{"id":1,"method":"a","params":[5]}, {"method":"b"}, {"id":"x","method":"c"}, 5]`+"\n[]",
		func(w http.ResponseWriter, r *http.Request) {
			raw, _ := io.ReadAll(r.Body)
			got <- string(raw)
			var m struct {
				ID jsontext.Value `json:"id"`
			}
			_ = json.Unmarshal(raw, &m)
			if w.Header().Set("Content-Type", "application/json"); m.ID == nil {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			fmt.Fprintf(w, `{"id":%s,"result":0}`, m.ID)
		})
	close(got)
	parseError := `{"error":{"code":-32700,"message":"this line is not a JSON-RPC message"},"id":null,"jsonrpc":"2.0"}`
	want := []string{parseError, parseError, `{"id":"x","result":0}`, `{"id":1,"result":0}`}
	slices.Sort(lines)
	slices.Sort(want)
	if !slices.Equal(lines, want) {
		t.Errorf("answers: %q, want %q", lines, want)
	}
	var sent []string
	for raw := range got {
		sent = append(sent, raw)
	}
	slices.Sort(sent)
	want = []string{`{"id":"x","method":"c"}`, `{"id":1,"method":"a","params":[5]}`, `{"method":"b"}`}
	if !slices.Equal(sent, want) {
		t.Errorf("the server got %q, want %q", sent, want)
	}
}
