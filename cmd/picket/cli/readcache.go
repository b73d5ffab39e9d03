package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxCachedAnswer bounds an answer in bytes, as the client does by default.
const maxCachedAnswer = 16 << 20

// readCache answers reads again without asking the server while --watch shows them: only
// their ages change. Other requests pass.
type readCache struct {
	next   http.RoundTripper
	mu     sync.Mutex
	kept   map[string][]byte // the answers to reads by their URL; nil: nothing is kept
	readAt time.Time         // of the latest answer that came from the server
}

// start forgets what is kept, and keeps what is read from now on.
func (c *readCache) start() { c.keep(map[string][]byte{}) }

func (c *readCache) stop() { c.keep(nil) }

func (c *readCache) keep(kept map[string][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = kept
}

// lastRead is when the latest answer came from the server.
func (c *readCache) lastRead() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readAt
}

func (c *readCache) RoundTrip(r *http.Request) (*http.Response, error) {
	url := r.URL.String()
	c.mu.Lock()
	body, known := c.kept[url]
	keeps := c.kept != nil && r.Method == http.MethodGet && r.Header.Get("Accept") == "application/json"
	c.mu.Unlock()
	if known && keeps {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
	}
	res, err := c.next.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusOK || r.Header.Get("Accept") != "application/json" {
		return res, err
	}
	if keeps {
		body, err = io.ReadAll(io.LimitReader(res.Body, maxCachedAnswer+1))
		res.Body.Close()
		if err == nil && len(body) > maxCachedAnswer {
			err = fmt.Errorf("the answer has more than %d bytes", maxCachedAnswer)
		}
		if err != nil {
			return nil, err
		}
		res.Body = io.NopCloser(bytes.NewReader(body))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readAt = time.Now()
	if keeps && c.kept != nil {
		c.kept[url] = body
	}
	return res, nil
}
