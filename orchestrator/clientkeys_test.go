package orchestrator_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

var partner = picket.ClientLimits{Roles: []string{"builder", "reviewer"}, MaxOpen: 20, RatePerMinute: 60}

// wantClient wants that a key speaks for a client with limits, and for nobody else.
func (f *fixture) wantClient(t *testing.T, key picket.NewKey, want picket.ClientLimits) {
	t.Helper()
	who, err := f.Authenticate(f.Ctx, key.Key)
	kit.OK(t, err)
	shown, err := f.Key(f.Ctx, key.KeyID)
	kit.OK(t, err)
	if !reflect.DeepEqual(who.Client, &want) || !reflect.DeepEqual(shown.Client, &want) {
		t.Errorf("the key has the limits %+v, and is shown with %+v", who.Client, shown.Client)
	}
	if !who.May(picket.ScopeClient) ||
		who.May(picket.ScopeAgent, picket.ScopeReviewer, picket.ScopeOperator, picket.ScopeAdmin) {
		t.Errorf("the key speaks for %+v", who)
	}
}

// A client key keeps the limits with which it was made. Any other key has none, neither in
// the store nor in the audit log.
func TestAClientKeyHasLimits(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		client, other := f.MustCreateClientKey(t, partner.Roles...), f.MustCreateKey(t, picket.ScopeAgent)
		f.wantClient(t, client, partner)
		k, err := f.Key(f.Ctx, other)
		kit.OK(t, err)
		fields, err := f.Raw.HKeys(f.Ctx, "pk:{default}:key:"+other).Result()
		kit.OK(t, err)
		if k.Client != nil || strings.Contains(strings.Join(fields, " "), "client") {
			t.Errorf("a key with scope agent has the limits %+v and the fields %v", k.Client, fields)
		}
		said := f.AuditLog(t, picket.EventKeyCreated)
		const limits = `"client":{"roles":"builder,reviewer","maxOpen":20,"ratePerMinute":60}`
		if n := len(said); !strings.Contains(string(said[n-2].Data), limits) ||
			strings.Contains(string(said[n-1].Data), "client") {
			t.Errorf("the audit log says %s, then %s", said[n-2].Data, said[n-1].Data)
		}
		plain, err := f.CreateKey(f.Ctx, kit.Operator, picket.KeyRequest{Name: "plain",
			Scopes: []picket.Scope{picket.ScopeClient}, Client: &picket.ClientLimits{Roles: []string{picket.AnyRole}}})
		kit.OK(t, err)
		f.wantClient(t, plain, picket.ClientLimits{Roles: []string{picket.AnyRole}, MaxOpen: picket.DefaultClientOpen})
	})
}

// A run key has the scope agent, so a client key cannot make one, and nothing is written. A
// key of a person can.
func TestAClientKeyMakesNoRunKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		client, parent := f.MustCreateClientKey(t, picket.AnyRole), f.MustCreateKey(t, picket.ScopeOperator)
		before, err := f.Keys(f.Ctx)
		kit.OK(t, err)
		by := kit.Idempotent("k")
		by.Key = client.KeyID
		for range 2 {
			_, err = f.CreateRunKey(f.Ctx, by, picket.RunKeyRequest{AgentID: "a1"})
			kit.Refused(t, err, picket.CodeForbidden)
		}
		after, err := f.Keys(f.Ctx)
		kit.OK(t, err)
		if len(after) != len(before) {
			t.Errorf("a refused run key is listed: %+v", after)
		}
		f.MustCreateRunKey(t, parent)
	})
}

// Whatever is asked for after it, a client key keeps its rights.
func TestAClientKeyGetsNoMoreRights(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		by, req := kit.Idempotent("k"), picket.KeyRequest{
			Name: "partner", Scopes: []picket.Scope{picket.ScopeClient}, Client: &partner,
		}
		client, err := f.CreateKey(f.Ctx, by, req)
		kit.OK(t, err)
		again, err := f.CreateKey(f.Ctx, by, req)
		kit.OK(t, err)
		if again != client {
			t.Errorf("a repeated request made %s after %s", again.KeyID, client.KeyID)
		}
		admin := []picket.Scope{picket.ScopeAdmin}
		adopted, err := f.AdoptKey(f.Ctx, kit.Operator, "admin", client.Key, admin)
		kit.OK(t, err)
		if adopted.KeyID != client.KeyID || !reflect.DeepEqual(adopted.Scopes, req.Scopes) {
			t.Errorf("adopted as %+v", adopted)
		}
		f.wantClient(t, client, partner)
		all := &picket.ClientLimits{Roles: []string{picket.AnyRole}}
		asked := map[string]picket.KeyRequest{
			"other scopes": {Name: "partner", Scopes: admin},
			"other limits": {Name: "partner", Scopes: req.Scopes, Client: all},
			"another end":  {Name: "partner", Scopes: req.Scopes, Client: &partner, ExpiresAt: 4e12},
		}
		for name, other := range asked {
			f.forgetRequests(t)
			if _, err := f.CreateKey(f.Ctx, by, other); picket.CodeOf(err) != picket.CodeStateConflict {
				t.Errorf("%s after the request was forgotten: %v", name, err)
			}
			f.wantClient(t, client, partner)
		}
	})
}

// An administrator who asks for a client key with an Idempotency-Key of long ago is not shown
// the stronger key of that time.
func TestAKeyOfAnEarlierRequestIsNotShownAsAClientKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		by := kit.Idempotent("k")
		_, err := f.CreateKey(f.Ctx, by, picket.KeyRequest{Name: "k", Scopes: []picket.Scope{picket.ScopeAdmin}})
		kit.OK(t, err)
		f.forgetRequests(t)
		_, err = f.CreateKey(f.Ctx, by, picket.KeyRequest{Name: "k", Scopes: []picket.Scope{picket.ScopeClient},
			Client: &partner})
		kit.Refused(t, err, picket.CodeStateConflict)
	})
}

// forgetRequests deletes the answers of all requests, as their end after a day does.
func (f *fixture) forgetRequests(t *testing.T) {
	t.Helper()
	keys, err := f.Raw.Keys(f.Ctx, "pk:{default}:req:*").Result()
	kit.OK(t, err)
	for _, key := range keys {
		kit.OK(t, f.Raw.Del(f.Ctx, key).Err())
	}
}

// A record of a client key that has lost its limits allows no role.
func TestAClientKeyWithoutLimitsAllowsNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		client := f.MustCreateClientKey(t, picket.AnyRole)
		kit.OK(t, f.Raw.HDel(f.Ctx, "pk:{default}:key:"+client.KeyID,
			"client_roles", "client_open", "client_rate").Err())
		who, err := f.Authenticate(f.Ctx, client.Key)
		kit.OK(t, err)
		if who.Client == nil || who.Client.Allows("builder") || who.Client.Allows("") || who.Client.MaxOpen != 0 {
			t.Errorf("the limits are %+v", who.Client)
		}
	})
}

// What cannot be a client key is refused with its field, and nothing is recorded.
func TestRequestsForClientKeysAreChecked(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		before, err := f.Keys(f.Ctx)
		kit.OK(t, err)
		client := []picket.Scope{picket.ScopeClient}
		for field, req := range map[string]picket.KeyRequest{
			"/scopes": {Scopes: []picket.Scope{picket.ScopeClient, picket.ScopeAgent}, Client: &partner},
			"/client": {Scopes: client},
		} {
			req.Name = "x"
			_, err := f.CreateKey(f.Ctx, kit.Operator, req)
			kit.Refused(t, err, picket.CodeValidation)
			if refusal, _ := picket.RefusalOf(err); refusal.Facts["field"] != field || refusal.Remedy == "" {
				t.Errorf("%+v is refused with %+v", req, refusal)
			}
		}
		_, err = f.AdoptKey(f.Ctx, kit.Operator, "x", picket.Secret("pkk_default_"+strings.Repeat("A", 43)), client)
		kit.Refused(t, err, picket.CodeValidation)
		if after, err := f.Keys(f.Ctx); err != nil || len(after) != len(before) {
			t.Errorf("recorded: %+v, %v", after, err)
		}
	})
}
