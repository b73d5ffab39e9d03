package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/internal/rig/contract"
)

// routeRecorder notes what a client asks for.
type routeRecorder struct{ routes []string }

func (r *routeRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.routes = append(r.routes, req.Method+" "+req.URL.Path)
	rec := httptest.NewRecorder()
	_, _ = rec.WriteString("{}")
	res := rec.Result()
	res.Request = req
	return res, nil
}

// Every route of the control plane has a method, and every method asks for a route that
// the API describes.
func TestEveryRouteHasAMethod(t *testing.T) {
	asked := &routeRecorder{}
	c := client.New("http://server", "", client.Options{HTTP: &http.Client{Transport: asked}})
	services := reflect.ValueOf(c).Elem()
	for i := range services.NumField() {
		service := services.Field(i)
		if !services.Type().Field(i).IsExported() {
			continue
		}
		for m := range service.NumMethod() {
			callWithZeros(t, service.Type().Method(m).Name, service.Method(m))
		}
	}
	if _, err := c.Events.List(t.Context(), picket.EventQuery{Audit: true}); err != nil {
		t.Error(err)
	}
	_, _ = c.Tasks.CreateMany(t.Context(), make([]picket.TaskSubmission, 1)) // without tasks it asks for nothing
	var described []string
	for _, route := range contract.Load(t).Routes() {
		if controlPlane(route) {
			described = append(described, idPattern.Replace(route))
		}
	}
	for _, route := range described {
		if !slices.Contains(asked.routes, route) {
			t.Errorf("no method of the client asks for %s", route)
		}
	}
	for _, route := range asked.routes {
		if controlPlane(route) && !slices.Contains(described, route) {
			t.Errorf("the client asks for %s, which the API does not describe", route)
		}
	}
	if len(described) < 40 {
		t.Errorf("the API describes %d routes only: %q", len(described), described)
	}
}

// idPattern writes the parameters of a path as callWithZeros fills them.
var idPattern = strings.NewReplacer("{id}", "ID", "{task}", "ID", "{role}", "ID", "{digest}", "ID",
	"{piece}", "0", "{name}", "ID", "{command}", "ID",
	"{prompt}", "ID")

// controlPlane reports whether a route is for an API key, not for a lease token.
func controlPlane(route string) bool {
	return strings.Contains(route, " "+client.BasePath+"/") || strings.Contains(route, " /api/agents/") ||
		strings.HasSuffix(route, " /v1/leases/renew")
}

// callWithZeros calls a method with the id ID and zero values. Iterators, streams and downloads read
// the routes of other methods.
func callWithZeros(t *testing.T, name string, method reflect.Value) {
	t.Helper()
	if name == "All" || name == "Follow" || name == "DownloadBundle" {
		return
	}
	kind := method.Type()
	in := []reflect.Value{reflect.ValueOf(context.Background())}
	for i := 1; i < kind.NumIn()-1; i++ { // the last one is variadic
		arg := reflect.New(kind.In(i)).Elem()
		if kind.In(i).Kind() == reflect.String {
			arg.SetString("ID")
		}
		in = append(in, arg)
	}
	out := method.Call(in)
	if err := out[len(out)-1]; !err.IsNil() {
		t.Errorf("%s: %v", name, err)
	}
}
