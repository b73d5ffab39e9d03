package agenttoagent

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
)

// receiver takes the push notifications of a run. Each configuration of a rule has a path of its own.
type receiver struct {
	url    string // without a slash at its end
	server *http.Server

	mu  sync.Mutex
	got map[string][]notification // by path
}

// notification is one request to the receiver.
type notification struct {
	method string
	header http.Header
	body   fields // nil: it is not a JSON object
}

// maxNotification is how much of a body the receiver reads, in bytes.
const maxNotification = 16 << 20

// startReceiver serves a listener, and is reached at url; empty: at the address of the listener over HTTP.
func startReceiver(l net.Listener, url string) *receiver {
	if url == "" {
		url = "http://" + l.Addr().String()
	}
	r := &receiver{url: strings.TrimRight(url, "/"), got: map[string][]notification{}}
	r.server = &http.Server{Handler: r}
	go func() { _ = r.server.Serve(l) }()
	return r
}

func (r *receiver) close() { _ = r.server.Close() }

// ServeHTTP keeps a notification, and takes it.
func (r *receiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	raw, _ := io.ReadAll(io.LimitReader(req.Body, maxNotification))
	n := notification{method: req.Method, header: req.Header.Clone()}
	_ = json.Unmarshal(raw, &n.body) // a body that is not an object stays nil
	path := strings.Trim(req.URL.Path, "/")
	path = path[strings.LastIndex(path, "/")+1:]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got[path] = append(r.got[path], n)
}

// at are the notifications that have come to a path.
func (r *receiver) at(path string) []notification {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]notification(nil), r.got[path]...)
}

// state is the state that a notification tells; empty: none.
func (n notification) state() string {
	if s := text(n.body, "statusUpdate.status.state"); s != "" {
		return s
	}
	return text(n.body, "task.status.state")
}

// taskID is the task that a notification is about.
func (n notification) taskID() string {
	for _, path := range []string{"task.id", "message.taskId", "statusUpdate.taskId", "artifactUpdate.taskId"} {
		if id := text(n.body, path); id != "" {
			return id
		}
	}
	return ""
}

// payloads are the members of a StreamResponse, of which it has exactly one.
var payloads = []string{"task", "message", "statusUpdate", "artifactUpdate"}

// wrong says what is wrong with a notification about a task; empty: nothing.
func (n notification) wrong(task string) string {
	found := 0
	for _, name := range payloads {
		if object(n.body, name) != nil {
			found++
		}
	}
	switch {
	case n.method != http.MethodPost:
		return "a " + n.method
	case n.body == nil:
		return "a body that is not a JSON object"
	case found != 1 || len(n.body) != 1:
		return "a body that is not exactly one of " + strings.Join(payloads, ", ")
	case n.taskID() != task:
		return "a notification about another task"
	}
	return ""
}
