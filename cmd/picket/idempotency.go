package main

import "crypto/rand"

// newIdempotencyKey names one intended change, however often it is sent.
func newIdempotencyKey() string { return "cli_" + rand.Text() }
