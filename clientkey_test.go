package picket

import (
	"fmt"
	"reflect"
	"testing"
)

func TestKeyRequestsOfClients(t *testing.T) {
	many := make([]string, MaxClientRoles+1)
	for i := range many {
		many[i] = fmt.Sprint("role-", i)
	}
	client, agent := []Scope{ScopeClient}, []Scope{ScopeAgent}
	for _, c := range []struct {
		scopes []Scope
		limits *ClientLimits
		field  string
	}{
		{client, nil, "/client"},
		{agent, &ClientLimits{Roles: []string{"builder"}}, "/client"},
		{[]Scope{ScopeAdmin, ScopeClient}, &ClientLimits{Roles: []string{"builder"}}, "/scopes"},
		{[]Scope{ScopeClient, ScopeClient}, &ClientLimits{Roles: []string{"builder"}}, "/scopes"},
		{[]Scope{"clients"}, nil, "/scopes/0"},
		{client, &ClientLimits{}, "/client/roles"},
		{client, &ClientLimits{Roles: many}, "/client/roles"},
		{client, &ClientLimits{Roles: []string{"builder", AnyRole}}, "/client/roles"},
		{client, &ClientLimits{Roles: []string{"builder", ""}}, "/client/roles/1"},
		{client, &ClientLimits{Roles: []string{"a,b"}}, "/client/roles/0"},
		{client, &ClientLimits{Roles: []string{"builder"}, MaxOpen: -1}, "/client/maxOpen"},
		{client, &ClientLimits{Roles: []string{"builder"}, MaxOpen: MaxClientOpen + 1}, "/client/maxOpen"},
		{client, &ClientLimits{Roles: []string{"builder"}, RatePerMinute: -1}, "/client/ratePerMinute"},
		{client, &ClientLimits{Roles: []string{"builder"}, RatePerMinute: MaxClientRate + 1}, "/client/ratePerMinute"},
		{agent, nil, ""},
		{client, &ClientLimits{Roles: many[1:], MaxOpen: MaxClientOpen, RatePerMinute: MaxClientRate}, ""},
	} {
		req := KeyRequest{Name: "x", Scopes: c.scopes, Client: c.limits}
		err := req.Normalize()
		if c.field == "" && err == nil {
			continue
		}
		refusal, _ := RefusalOf(err)
		if refusal == nil || refusal.Code != CodeValidation || refusal.Facts["field"] != c.field ||
			refusal.Remedy == "" {
			t.Errorf("%v with %+v: %v", c.scopes, c.limits, err)
		}
	}
}

func TestLimitsOfClientsAreNormalized(t *testing.T) {
	given := ClientLimits{Roles: []string{"b", "a", "b"}}
	req := KeyRequest{Name: "x", Scopes: []Scope{ScopeClient}, Client: &given}
	if err := req.Normalize(); err != nil {
		t.Fatal(err)
	}
	want := ClientLimits{Roles: []string{"b", "a"}, MaxOpen: DefaultClientOpen}
	if !reflect.DeepEqual(*req.Client, want) || len(given.Roles) != 3 || given.MaxOpen != 0 {
		t.Errorf("normalized to %+v, and the caller has %+v", *req.Client, given)
	}
}

func TestWhichRolesAClientMayUse(t *testing.T) {
	var none *ClientLimits
	for _, c := range []struct {
		limits *ClientLimits
		role   string
		want   bool
	}{
		{none, "a", false}, {&ClientLimits{}, "a", false}, {&ClientLimits{}, "", false},
		{&ClientLimits{Roles: []string{"a"}}, "a", true}, {&ClientLimits{Roles: []string{"a"}}, "b", false},
		{&ClientLimits{Roles: []string{"a"}}, "", false}, {&ClientLimits{Roles: []string{AnyRole}}, "b", true},
	} {
		if got := c.limits.Allows(c.role); got != c.want {
			t.Errorf("%+v allows %q: %v", c.limits, c.role, got)
		}
	}
}
