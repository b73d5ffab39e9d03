// Package contract holds every answer of a test against docs/openapi.yaml:
// wrap the transport of the test's client, or check answers one by one.
package contract

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/docs"
)

// Document is the parsed API description.
type Document struct {
	doc   *openapi3.T
	paths []pathPattern
}

type pathPattern struct {
	template string
	match    *regexp.Regexp
}

// load parses the description once for all tests of a process.
var load = sync.OnceValues(func() (*Document, error) {
	// Metrics and the description itself are text; only their type is checked.
	for _, t := range []string{"text/event-stream", "application/yaml", "text/plain"} {
		openapi3filter.RegisterBodyDecoder(t, anyText)
	}
	doc, err := openapi3.NewLoader().LoadFromData(docs.OpenAPI)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	d := &Document{doc: doc}
	for _, template := range doc.Paths.InMatchingOrder() {
		d.paths = append(d.paths, pathPattern{template, pattern(template)})
	}
	return d, nil
})

func anyText(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
	text, err := io.ReadAll(body)
	return string(text), err
}

var parameter = regexp.MustCompile(`\\\{[^}]*\\\}`)

func pattern(template string) *regexp.Regexp {
	return regexp.MustCompile("^" + parameter.ReplaceAllString(regexp.QuoteMeta(template), "[^/]+") + "$")
}

// Load parses the description and fails the test when it is not valid.
func Load(t testing.TB) *Document {
	t.Helper()
	d, err := load()
	if err != nil {
		t.Fatalf("docs/openapi.yaml: %v", err)
	}
	return d
}

// Routes lists every route described as "METHOD /path/{parameter}".
func (d *Document) Routes() []string {
	var all []string
	for template, item := range d.doc.Paths.Map() {
		for method := range item.Operations() {
			all = append(all, method+" "+template)
		}
	}
	return all
}

// QueryParameters returns the names of the query parameters of an operation, sorted. path is
// the template of its path.
func (d *Document) QueryParameters(method, path string) []string {
	var names []string
	for _, p := range d.doc.Paths.Value(path).GetOperation(method).Parameters {
		if p.Value.In == openapi3.ParameterInQuery {
			names = append(names, p.Value.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Check holds an answer against the description. The answer to a request that
// no route takes must be a problem of status 404 or 405.
func (d *Document) Check(r *http.Request, status int, header http.Header, body []byte) error {
	route, known := d.find(r.Method, r.URL)
	if !known {
		if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			return fmt.Errorf("%s %s is not described, but was answered with %d", r.Method, r.URL.Path, status)
		}
		return d.checkProblem(header, body)
	}
	err := openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, Route: route},
		Status:                 status,
		Header:                 header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		return fmt.Errorf("%s %s, %d: %w\n%.2000s", r.Method, r.URL.Path, status, err, body)
	}
	return nil
}

func (d *Document) find(method string, u *url.URL) (*routers.Route, bool) {
	for _, p := range d.paths {
		if !p.match.MatchString(u.Path) {
			continue
		}
		item := d.doc.Paths.Value(p.template)
		op := item.GetOperation(method)
		return &routers.Route{Spec: d.doc, Path: p.template, PathItem: item, Method: method, Operation: op}, op != nil
	}
	return nil, false
}

func (d *Document) checkProblem(header http.Header, body []byte) error {
	if got := header.Get("Content-Type"); !strings.HasPrefix(got, "application/problem+json") {
		return fmt.Errorf("Content-Type is %q", got)
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return err
	}
	return d.doc.Components.Schemas["Problem"].Value.VisitJSON(v)
}

// Transport checks everything that passes through next, streams excepted:
// those are read for ever. A nil next is http.DefaultTransport.
func (d *Document) Transport(t testing.TB, next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return &transport{t: t, d: d, next: next}
}

type transport struct {
	t    testing.TB
	d    *Document
	next http.RoundTripper
}

func (c *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err != nil || strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err := c.d.Check(r, resp.StatusCode, resp.Header, body); err != nil {
		c.t.Error(err)
	}
	return resp, nil
}

// Fields lists the members of a schema of the description, nil when there is
// no such schema.
func (d *Document) Fields(schema string) []string {
	ref := d.doc.Components.Schemas[schema]
	if ref == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(ref.Value.Properties))
}
