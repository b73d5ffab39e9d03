package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// fakeWebhookTester takes everything that is not inside.
type fakeWebhookTester struct {
	tried []picket.WebhookTarget
	shut  bool // no address may be called
}

func (p *fakeWebhookTester) Check(_ context.Context, target picket.Secret) error {
	if p.shut || strings.Contains(target.Reveal(), "//10.") {
		return picket.Invalid("/url", "Put 10.0.0.1:80 on notify.allow.", "it leads inside")
	}
	return nil
}

func (p *fakeWebhookTester) Test(_ context.Context, t picket.WebhookTarget) picket.WebhookTest {
	p.tried = append(p.tried, t)
	return picket.WebhookTest{WebhookID: t.WebhookID, Name: t.Name, Delivered: true, Status: 204}
}

func TestWebhooksOverTheAPI(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	way := &fakeWebhookTester{}
	p := newFixture(t, store, api.Config{Webhooks: way})
	const body = `{"name":"ops","url":"https://hooks.example.test/T0/very-secret","types":["task.review"],"format":"slack"}`
	made := p.want(201, "POST", "/api/v1/webhooks", "operator", body, "Idempotency-Key", "w")
	secret, at := made.text("secret"), made.header.Get("Location")
	if !strings.HasPrefix(secret, "whsec_") || at != "/api/v1/webhooks/"+made.text("webhookId") {
		t.Fatalf("made: %s at %s", made.raw, at)
	}
	if again := p.want(201, "POST", "/api/v1/webhooks", "operator", body, "Idempotency-Key",
		"w"); again.text("secret") != secret || again.text("webhookId") != made.text("webhookId") {
		t.Errorf("the same request again: %s", again.raw)
	}
	// An answer that was lost is shown although the address has moved inside
	// since; nothing else is made.
	way.shut = true
	if again := p.want(201, "POST", "/api/v1/webhooks", "operator", body, "Idempotency-Key",
		"w"); again.text("secret") != secret || again.header.Get("Location") != at {
		t.Errorf("the same request again, while its target may not be called: %s", again.raw)
	}
	for _, headers := range [][]string{{"Idempotency-Key", "other"}, nil} {
		if got := p.wantCode(picket.CodeValidation, "POST", "/api/v1/webhooks", "operator", body,
			headers...); got.text("field") != "/url" {
			t.Errorf("a target that may not be called: %s", got.raw)
		}
	}
	way.shut = false
	if all := p.want(200, "GET", "/api/v1/webhooks", "operator", ""); strings.Count(all.raw, `"webhookId"`) != 1 {
		t.Errorf("the targets: %s", all.raw)
	}
	for _, read := range []string{at, "/api/v1/webhooks", "/api/v1/events"} {
		got := p.want(200, "GET", read, "operator", "")
		if strings.Contains(got.raw, secret) || strings.Contains(got.raw, "very-secret") ||
			!strings.Contains(got.raw, "hooks.example.test/…") {
			t.Errorf("%s shows %s", read, got.raw)
		}
	}
	if got := p.want(200, "POST", at+"/test", "operator", ""); got.body["delivered"] != true || len(way.tried) != 1 ||
		way.tried[0].Target != "https://hooks.example.test/T0/very-secret" || way.tried[0].Secret.Reveal() != secret {
		t.Errorf("a test: %s", got.raw)
	}
	if got := p.want(200, "POST", at+"/revive", "operator", ""); got.text("state") != "active" {
		t.Errorf("revived: %s", got.raw)
	}
	p.want(200, "DELETE", at, "operator", "", "Idempotency-Key", "d")
	if got := p.want(200, "DELETE", at, "operator", "", "Idempotency-Key", "d"); got.text("name") != "ops" {
		t.Errorf("deleted twice by one request: %s", got.raw)
	}
	p.wantCode(picket.CodeNotFound, "GET", at, "operator", "")
	p.wantCode(picket.CodeStateConflict, "POST", "/api/v1/webhooks", "operator", body, "Idempotency-Key", "w")
	way.shut = true
	p.wantCode(picket.CodeStateConflict, "POST", "/api/v1/webhooks", "operator", body, "Idempotency-Key", "w")
	p.wantCode(picket.CodeIdempotencyConflict, "POST", "/api/v1/webhooks", "operator", `{"url":"https://x.test"}`,
		"Idempotency-Key", "w")
	way.shut = false
	for wrong, field := range map[string]string{
		`{}`:                           "/url",
		`{"url":"ftp://x.test"}`:       "/url",
		`{"url":"https://u:p@x.test"}`: "/url",
		`{"url":"https://x.test/#a"}`:  "/url",
		`{"url":"http://10.0.0.1/"}`:   "/url",
		`{"url":"https://x.test","types":["task.review","nonsense"]}`:        "/types/1",
		`{"url":"https://x.test","format":"morse"}`:                          "/format",
		`{"url":"https://x.test/` + strings.Repeat("x", 2048) + `"}`:         "/url",
		`{"url":"https://x.test","name":"` + strings.Repeat("x", 129) + `"}`: "/name",
	} {
		if got := p.wantCode(picket.CodeValidation, "POST", "/api/v1/webhooks", "operator",
			wrong); got.text("field") != field {
			t.Errorf("%.60s: %s", wrong, got.raw)
		}
	}
}

// A server without a way out refuses targets and says why.
func TestWebhooksNeedAWayOut(t *testing.T) {
	p := newMemoryFixture(t)
	p.wantCode(picket.CodeNotAvailable, "POST", "/api/v1/webhooks", "operator", `{"url":"https://x.test/"}`)
}
