// Package docs holds the documents that programs read.
package docs

import _ "embed"

// OpenAPI is openapi.yaml: every route of the control plane and of the tool
// proxy. Tests check that no route and no answer escapes it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// RFC16 is rfc16.md: every rule of RFC-0016. A conformance run has a check for each.
//
//go:embed rfc16.md
var RFC16 string

// Heartbeat is reference/heartbeat.md: every rule of Agent Heartbeat. A conformance run has a check for each.
//
//go:embed reference/heartbeat.md
var Heartbeat string

// A2A is reference/a2a.md: every rule of the suite of A2A. A conformance run has a check for each.
//
//go:embed reference/a2a.md
var A2A string
