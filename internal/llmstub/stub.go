// Package llmstub is a language model that plays a script, for tests with real
// agents. It speaks the wire of Anthropic's messages, of OpenAI's chat
// completions and responses, and of Gemini's generateContent, streamed or not.
// It thinks nothing, keeps no state between requests and opens no connection.
package llmstub

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/internal/sse"
)

// API names the wire that a request came over.
type API string

const (
	Anthropic API = "anthropic" // POST …/v1/messages
	Chat      API = "chat"      // POST …/chat/completions
	Responses API = "responses" // POST …/responses
	Gemini    API = "gemini"    // POST …/models/NAME:generateContent and :streamGenerateContent
)

// Request is what a client asked, as far as a script may care.
type Request struct {
	API    API
	Model  string
	Key    string // the credential the client sent, without "Bearer "
	System string // what comes before the conversation
	Prompt string // the last message of the user's that is not the result of a tool
	Step   int    // how many answers the model has given to it
	Tools  []string
	Result string // of the last tool called, as text; empty when none was
	Stream bool
	Body   string // as it came
}

// Offers reports whether the client offers a tool; agents put prefixes of their
// own before the names of a server's tools.
func (r Request) Offers(tool string) bool { return r.offeredName(tool) != "" }

func (r Request) offeredName(tool string) string {
	for _, name := range r.Tools {
		if name == tool || strings.HasSuffix(name, "_"+tool) || strings.HasSuffix(name, "."+tool) {
			return name
		}
	}
	return ""
}

// Turn is one answer of the model: words, or the call of a tool.
type Turn struct {
	Say  string
	Call string // the tool as its server names it; must be offered
	Args any    // of the call, written as JSON
	In   int64  // tokens read. Defaults to 100
	Out  int64  // tokens written. Defaults to 10
	// Searches of the web that the vendor made before it answered; over the wires
	// of Anthropic's messages and OpenAI's responses, where the client offers
	// them. Defaults to none.
	Searches int
}

// Script answers requests.
type Script func(Request) Turn

// Play answers a prompt with the turns, one after another, and the last again
// and again. Requests that do not offer the tools of the turns are not about
// the task, such as those for a title: they get a word.
func Play(turns ...Turn) Script {
	return func(r Request) Turn {
		for _, t := range turns {
			if t.Call != "" && !r.Offers(t.Call) {
				return Turn{Say: "stub", In: 1, Out: 1}
			}
		}
		return turns[min(r.Step, len(turns)-1)]
	}
}

// Server is the model behind its wires: an http.Handler.
type Server struct {
	script Script

	mu         sync.Mutex
	seen       []Request
	unexpected []string
}

// New makes a model that plays a script.
func New(script Script) *Server { return &Server{script: script} }

// Requests are all that were answered so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.seen...)
}

// Unexpected are requests for something else than an answer, as method and path.
func (s *Server) Unexpected() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.unexpected...)
}

// codec is one API: how to read a request and how to write an answer.
type codec struct {
	read  func(path string, body []byte) (Request, error)
	write func(*responseWriter)
}

func codecFor(path string) (codec, bool) {
	switch {
	case strings.HasSuffix(path, "/messages"):
		return codec{readAnthropic, writeAnthropic}, true
	case strings.HasSuffix(path, "/chat/completions"):
		return codec{readChat, writeChat}, true
	case strings.HasSuffix(path, "/responses"):
		return codec{readResponses, writeResponses}, true
	case strings.HasSuffix(path, ":generateContent"), strings.HasSuffix(path, ":streamGenerateContent"):
		return codec{readGemini, writeGemini}, true
	}
	return codec{}, false
}

// ServeHTTP answers one request. What is not a question to a model is 404.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	over, known := codecFor(r.URL.Path)
	if !known || r.Method != http.MethodPost {
		s.record(func() { s.unexpected = append(s.unexpected, r.Method+" "+r.URL.Path) })
		http.Error(w, `{"error":{"type":"not_found_error","message":"the stub only answers questions"}}`,
			http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	req, err := over.read(r.URL.Path, body)
	if err != nil {
		http.Error(w, fmt.Sprintf(`{"error":{"type":"invalid_request_error","message":%q}}`, err),
			http.StatusBadRequest)
		return
	}
	req.Key, req.Body = keyOf(r), string(body)
	turn := s.script(req)
	if turn.Call != "" && !req.Offers(turn.Call) {
		turn = Turn{Say: "The script calls " + turn.Call + ", which is not offered."}
	}
	s.record(func() { s.seen = append(s.seen, req) })
	over.write(newResponseWriter(w, req, turn))
}

func (s *Server) record(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
}

func keyOf(r *http.Request) string {
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
		if key := r.Header.Get(name); key != "" {
			return key
		}
	}
	if key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return key
	}
	return r.URL.Query().Get("key")
}

// responseWriter is a turn on its way to a client.
type responseWriter struct {
	w    http.ResponseWriter
	req  Request
	turn Turn
	tool string // the called one, as the client names it
	args string // of the call, JSON
	id   string // of this answer, unlike those of the other steps
	// searchCount are the searches that were.
	searchCount int
}

func newResponseWriter(w http.ResponseWriter, req Request, turn Turn) *responseWriter {
	if turn.In == 0 {
		turn.In = 100
	}
	if turn.Out == 0 {
		turn.Out = 10
	}
	a := &responseWriter{w: w, req: req, turn: turn, args: "{}", id: newID()}
	if req.Offers("web_search") {
		a.searchCount = turn.Searches
	}
	if turn.Call != "" {
		a.tool = req.offeredName(turn.Call)
		if turn.Args != nil {
			b, err := json.Marshal(turn.Args)
			if err != nil {
				panic(fmt.Sprintf("the arguments of the script's call of %s are not JSON: %v", turn.Call, err))
			}
			a.args = string(b)
		}
	}
	return a
}

// writeJSON answers in one piece.
func (a *responseWriter) writeJSON(v any) {
	a.w.Header().Set("Content-Type", "application/json")
	_ = json.MarshalWrite(a.w, v)
}

// writeEvent writes one event of a stream, without a name if name is empty.
func (a *responseWriter) writeEvent(name string, v any) {
	a.w.Header().Set("Content-Type", sse.ContentType)
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_ = sse.NewWriter(a.w, time.Minute).Write(sse.Event{Type: name, Data: b})
}
