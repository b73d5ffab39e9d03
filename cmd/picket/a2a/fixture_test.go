package a2a

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/rig/cleanup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cleanup.WithTempDir(m, "pk-a2acli-")) }

// fakeAgent is an agent of A2A over JSON-RPC that answers what a test says.
type fakeAgent struct {
	url     string
	card    string                                           // AT stands for the URL
	answer  func(method string, params string) string        // the result or, beginning with error:, the error
	stream  func(w http.ResponseWriter, method string) error // nil: no streams; an error cuts the connection
	rest    func(http.ResponseWriter, *http.Request)         // answers all but the card, if it is set
	mu      sync.Mutex
	methods []string
	headers []http.Header
}

const usualCard = `{"name":"Fake","description":"Answers.","version":"1","capabilities":{"streaming":true},
	"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[],
	"supportedInterfaces":[{"url":"AT/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`

// newAgent starts an agent with the usual card.
func newAgent(t *testing.T) *fakeAgent {
	t.Helper()
	f := &fakeAgent{card: usualCard}
	server := httptest.NewServer(f)
	f.url = server.URL
	t.Cleanup(func() { client.DefaultHTTP.CloseIdleConnections(); server.Close() })
	return f
}

// newHop starts a server that redirects to another one. It returns its URL.
func newHop(t *testing.T, to string) string {
	t.Helper()
	server := httptest.NewServer(http.RedirectHandler(to, http.StatusTemporaryRedirect))
	t.Cleanup(func() { client.DefaultHTTP.CloseIdleConnections(); server.Close() })
	return server.URL
}

// ServeHTTP answers the card, and the calls of JSON-RPC.
func (f *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var call struct {
		ID     stdjson.RawMessage
		Method string
		Params stdjson.RawMessage
	}
	_ = stdjson.Unmarshal(body, &call)
	f.mu.Lock()
	f.methods, f.headers = append(f.methods, call.Method), append(f.headers, r.Header)
	f.mu.Unlock()
	if f.rest != nil && r.URL.Path != cardPath {
		f.rest(w, r)
		return
	}
	if call.Method == "" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, strings.ReplaceAll(f.card, "AT", f.url))
		return
	}
	if strings.HasPrefix(call.Method, "Subscribe") && f.stream != nil {
		w.Header().Set("Content-Type", "text/event-stream")
		if f.stream(w, call.Method) != nil {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	result := f.answer(call.Method, string(call.Params))
	if failure, ok := strings.CutPrefix(result, "error:"); ok {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, call.ID, failure)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, result)
}

// sent are the values of a header in all requests so far.
func (f *fakeAgent) sent(header string) (values []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.headers {
		values = append(values, h.Get(header))
	}
	return values
}

// called is how often a method was called.
func (f *fakeAgent) called(method string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.methods {
		if m == method {
			n++
		}
	}
	return n
}

// event writes an event of a stream of JSON-RPC.
func event(w http.ResponseWriter, result string) {
	fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":%s}\n\n", strings.ReplaceAll(result, "\n", ""))
	_ = http.NewResponseController(w).Flush()
}

func statusUpdate(state, text string) string {
	return fmt.Sprintf(`{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_%s",
		"message":{"messageId":"m-%[2]s","role":"ROLE_AGENT","parts":[{"text":"%[2]s"}]}}}}`, state, text)
}

func taskIn(state string) string {
	return fmt.Sprintf(`{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_%s"}}`, state)
}

// result is what a command has printed, and its exit code.
type result struct {
	stdout, stderr string
	code           int
}

// run runs `picket a2a` with arguments. Errors are printed as the program prints them.
func run(t *testing.T, args ...string) result {
	t.Helper()
	return runRoot(t, append([]string{"a2a"}, args...)...)
}

func runRoot(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := &cobra.Command{Use: "picket", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().String("config", "", "")
	root.PersistentFlags().String("url", "", "")
	root.AddCommand(New(), cli.NewConfig(func(string, string) error { return nil }))
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	err := root.ExecuteContext(t.Context())
	if err != nil {
		cli.PrintError(&stderr, root, err)
	}
	return result{stdout.String(), stderr.String(), exit.Code(err)}
}

func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			t.Errorf("%q is not in\n%s%s", text, r.stdout, r.stderr)
		}
	}
}

// atHome gives the commands a configuration of their own: the server that they use, and the saved key for it.
func atHome(t *testing.T, server, key string) {
	t.Helper()
	home := t.TempDir()
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("PICKET_URL", "")
	t.Setenv("PICKET_API_KEY", "")
	keyFile := filepath.Join(home, "picket", "key")
	for path, text := range map[string]string{
		keyFile: key + "\n",
		filepath.Join(home, "picket", "profile.json"): fmt.Sprintf(`{"url":%q,"keyFile":%q}`, server, keyFile),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
