package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"
)

// startTarget serves what paid calls reach, and counts them at /count:
// target VAR sets VAR to its host:port.
func startTarget(ts *testscript.TestScript, neg bool, args []string) {
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/count" {
			fmt.Fprintln(w, calls.Load())
			return
		}
		fmt.Fprintf(w, "call %d: %s\n", calls.Add(1), r.URL.Path)
	}))
	ts.Defer(server.Close)
	ts.Setenv(args[0], strings.TrimPrefix(server.URL, "http://"))
}
