package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"
)

// startTarget serves what paid calls and webhooks reach, and counts them at /count. What is
// posted stands in the file posts.txt, a line for each: target VAR sets VAR to its host:port.
func startTarget(ts *testscript.TestScript, neg bool, args []string) {
	var calls atomic.Int64
	var writing sync.Mutex
	var posts []byte
	path := ts.MkAbs("posts.txt")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/count" {
			fmt.Fprintln(w, calls.Load())
			return
		}
		if body, err := io.ReadAll(r.Body); err == nil && r.Method == http.MethodPost {
			writing.Lock()
			posts = append(append(posts, body...), '\n')
			err = os.WriteFile(path, posts, 0o644)
			writing.Unlock()
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		fmt.Fprintf(w, "call %d: %s\n", calls.Add(1), r.URL.Path)
	}))
	ts.Defer(server.Close)
	ts.Setenv(args[0], strings.TrimPrefix(server.URL, "http://"))
}
