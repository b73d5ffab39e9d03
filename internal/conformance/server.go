package conformance

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/picket-dev/picket/internal/unixsocket"
)

// Server is the server that is held against a document, with the keys of the run.
type Server struct {
	URL    string        // without a path
	Base   string        // what the URLs of requests begin with
	Prefix string        // of every id of the run
	HTTP   *http.Client  // does the requests
	Ahead  time.Duration // of the server's clock
	// Keys are the secrets of the run by their names. They are complete before the first rule runs.
	Keys map[KeyName]string

	mu   sync.Mutex
	made []string // ids of keys to be revoked
}

// NewServer is a server by its URL. suite begins the ids of the run. client does the requests; nil: one
// is made, for parallel requests at a time.
func NewServer(url, suite string, client *http.Client, parallel int) (*Server, error) {
	url = strings.TrimRight(url, "/")
	base, err := unixsocket.RequestURL(url)
	if err != nil {
		return nil, err
	}
	if client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = parallel
		unixsocket.Register(t)
		client = &http.Client{
			Transport:     t,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return &Server{
		URL:    url,
		Base:   base,
		Prefix: suite + "-" + strings.ToLower(rand.Text()[:8]) + "-",
		HTTP:   client,
		Keys:   map[KeyName]string{},
	}, nil
}

// Ask sends a request to the server. headers are names, each followed by its value.
func (s *Server) Ask(ctx context.Context, by KeyName, method, path string, body any, headers ...string) *Answer {
	return s.Do(ctx, Request{By: by, Secret: s.Keys[by], Method: method, URL: s.Base + path, Body: body,
		Headers: headers})
}

// SetClock compares the server's clock with this machine's by the Date of an answer.
func (s *Server) SetClock(a *Answer) {
	if date, err := http.ParseTime(a.Header.Get("Date")); err == nil {
		s.Ahead = date.Sub(time.Now().Truncate(time.Second))
	}
}

// MakeKey makes a key with a scope, by the administrator's key. It reports whether the server has made it.
func (s *Server) MakeKey(ctx context.Context, name KeyName, scope string) bool {
	a := s.Ask(ctx, Admin, "POST", "/api/v1/keys", Fields{"name": s.Prefix + scope, "scopes": []string{scope}})
	if a.Status != http.StatusCreated {
		return false
	}
	s.Keys[name] = a.Str("key")
	s.AlsoRevoke(a.Str("keyId"))
	return true
}

// MadeKeys reports whether the run has made keys.
func (s *Server) MadeKeys() bool { return len(s.made) > 0 }

// AlsoRevoke has a key of a rule's revoked at the end, if it was not before.
func (s *Server) AlsoRevoke(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, id)
}

// revoke ends the keys of the run, and returns those that it could not end.
func (s *Server) revoke(ctx context.Context) (left []string) {
	for _, id := range s.made {
		if a := s.Ask(ctx, Admin, "DELETE", "/api/v1/keys/"+id, nil); a.Status != http.StatusOK {
			left = append(left, "key "+id)
		}
	}
	return left
}
