// Package docs holds the API description that the control plane serves.
package docs

import _ "embed"

// OpenAPI is openapi.yaml: every route of the control plane and of the tool
// proxy. Tests check that no route and no answer escapes it.
//
//go:embed openapi.yaml
var OpenAPI []byte
