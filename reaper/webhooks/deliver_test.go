package webhooks_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/reaper/webhooks"
)

// Two deliverers serve three targets: each gets every event once, in order,
// signed with its own secret, and what happens later at once.
func TestEveryTargetGetsEveryEventInOrder(t *testing.T) {
	virtual(t, func(h *fixture) {
		g := &target{secrets: map[string]picket.Secret{}}
		h.addEvents(2) // before there was anybody to be told
		for _, name := range []string{"a", "b", "c"} {
			g.secrets[name+".test"] = h.addWebhook(name).Secret
		}
		h.addEvents(150)
		for range 2 {
			defer h.startDeliverer(g, nil)()
		}
		h.eventually("delivery", func() bool { return len(g.deliveries()) == 450 })
		time.Sleep(time.Minute)
		began := time.Now()
		h.addEvents(1)
		h.eventually("delivery of a later one", func() bool { return len(g.deliveries()) == 453 })
		if took := time.Since(began); took > time.Second {
			t.Errorf("the later one took %v", took)
		}
		g.wantInOrder(t, map[string]int{"a.test": 151, "b.test": 151, "c.test": 151})
		if len(g.problems) > 0 {
			t.Errorf("%d wrong requests, such as %s", len(g.problems), g.problems[0])
		}
	})
}

// wantInOrder checks that each host got so many events, each with one id, none
// before one that happened earlier, and none twice.
func (g *target) wantInOrder(t *testing.T, want map[string]int) {
	t.Helper()
	last, count := map[string]int64{}, map[string]int{}
	for _, a := range g.deliveries() {
		if a.seq <= last[a.host] {
			t.Errorf("%s got %d after %d", a.host, a.seq, last[a.host])
		}
		if strings.Contains(a.id, ".") || !strings.HasPrefix(a.id, "webhook_") {
			t.Errorf("the id %q", a.id)
		}
		last[a.host] = a.seq
		count[a.host]++
	}
	for host, n := range want {
		if count[host] != n {
			t.Errorf("%s got %d events, want %d", host, count[host], n)
		}
	}
}

// A failure is followed by the same request after a pause that doubles, and
// nothing later comes before it.
func TestBackoffDoublesAndKeepsTheOrder(t *testing.T) {
	virtual(t, func(h *fixture) {
		g := &target{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n <= 4 {
				return status(500)
			}
			return status(204)
		}}
		id := h.addWebhook("a").WebhookID
		h.addEvents(3)
		defer h.startDeliverer(g, nil)()
		h.eventually("delivery", func() bool { return len(g.deliveries()) == 7 })
		got := g.deliveries()
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
			if got[i+1].id != got[0].id {
				t.Errorf("attempt %d is about %s, not %s", i+2, got[i+1].id, got[0].id)
			}
			if gap := got[i+1].at.Sub(got[i].at); gap < want || gap > want+time.Second {
				t.Errorf("attempt %d came after %v, want %v", i+2, gap, want)
			}
		}
		if got[5].seq != got[4].seq+1 || got[6].seq != got[5].seq+1 {
			t.Errorf("then came %d and %d", got[5].seq, got[6].seq)
		}
		h.eventually("its position", func() bool { return h.webhook(id).Failures == 0 })
		if w := h.webhook(id); w.LastStatus != 204 || w.LastError != "" || !w.NextAttemptAt.IsZero() {
			t.Errorf("afterwards: %+v", w)
		}
	})
}

// After a day of failures a target is given up, with one event that contains no secret. When it is
// revived, it is sent all that it has missed.
func TestATargetThatNeverAnswersIsDead(t *testing.T) {
	rig.SkipShort(t)
	virtual(t, func(h *fixture) {
		away := true
		g := &target{answer: func(int, *http.Request) (*http.Response, error) {
			if away {
				return status(503)
			}
			return status(200)
		}}
		id := h.addWebhook("a").WebhookID
		h.addEvents(2)
		stop := h.startDeliverer(g, func(c *webhooks.Config) {
			c.Jitter = func(most time.Duration) time.Duration { return most }
		})
		defer stop()
		time.Sleep(time.Hour)
		if w := h.webhook(id); w.State != picket.WebhookActive || w.Failures != len(g.deliveries()) {
			t.Errorf("after an hour: %+v", w)
		}
		must(t, h.raw.HIncrBy(h.ctx, "pk:{default}:meta", "now", (23*time.Hour).Milliseconds()).Err())
		h.eventually("its death", func() bool { return h.webhook(id).State == picket.WebhookDead })
		h.addEvents(2)
		time.Sleep(10 * time.Minute)
		tries := len(g.deliveries())
		// after 9 that double to 5 minutes, one in 5 minutes of an hour, and one a day later
		if tries < 20 || tries > 22 {
			t.Errorf("%d attempts", tries)
		}
		if w := h.webhook(id); w.Failures != tries || w.LastStatus != 503 || w.LastError != "HTTP 503" ||
			!w.NextAttemptAt.IsZero() {
			t.Errorf("dead: %+v", w)
		}
		page, err := h.Events(h.ctx, picket.EventQuery{Types: []string{picket.EventWebhookDead}})
		must(t, err)
		if len(page.Events) != 1 || !page.Events[0].IsNotice() {
			t.Errorf("events: %+v", page.Events)
		}
		away = false
		_, err = h.ReviveWebhook(h.ctx, operator, id)
		must(t, err)
		h.eventually("what it missed", func() bool { return len(g.deliveries()) == tries+4 })
		got := g.deliveries()[tries:]
		for i, a := range got[1:] {
			if a.seq <= got[i].seq {
				t.Errorf("after its revival: %v", got)
			}
		}
		stop()
		all, err := h.Events(h.ctx, picket.EventQuery{Limit: 1000})
		must(t, err)
		for _, ev := range all.Events {
			if text := string(ev.Data); strings.Contains(text, "token=abc") || strings.Contains(text, "secret/path") ||
				strings.Contains(text, picket.WebhookSecretPrefix) {
				t.Errorf("%s holds a secret: %s", ev.Type, text)
			}
		}
		if text := h.log.String(); strings.Contains(text, "token=abc") || strings.Contains(text, "secret/path") ||
			!strings.Contains(text, "given up") {
			t.Errorf("the log: %s", text)
		}
	})
}

// A target that asks for a pause gets it, up to five minutes; one that is gone
// is left alone at once.
func TestWhatATargetAsksFor(t *testing.T) {
	rig.SkipShort(t)
	virtual(t, func(h *fixture) {
		asked := []string{"120", "86400", "Fri, 31 Dec 1999 23:59:59 GMT", "-5", "soon", "2147483648",
			"9223372036854775808", "1" + strings.Repeat("0", 30)}
		pauses := []time.Duration{2 * time.Minute, 5 * time.Minute, 4 * time.Second, 8 * time.Second, 16 * time.Second,
			5 * time.Minute, 5 * time.Minute, 5 * time.Minute}
		g := &target{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n <= len(asked) {
				return status(429, "Retry-After", asked[n-1])
			}
			return status(410)
		}}
		id := h.addWebhook("a").WebhookID
		h.addEvents(1)
		defer h.startDeliverer(g, nil)()
		h.eventually("its end", func() bool { return h.webhook(id).State == picket.WebhookOff })
		got := g.deliveries()
		for i, want := range pauses {
			if gap := got[i+1].at.Sub(got[i].at); gap < want || gap > want+2*time.Second {
				t.Errorf("asked for %q it paused %v, want %v", asked[i], gap, want)
			}
		}
		h.addEvents(1)
		time.Sleep(10 * time.Minute)
		if n := len(g.deliveries()); n != len(asked)+1 {
			t.Errorf("%d attempts", n)
		}
		page, err := h.Events(h.ctx, picket.EventQuery{Types: []string{picket.EventWebhookDead}})
		must(t, err)
		if len(page.Events) != 1 || !strings.Contains(string(page.Events[0].Data), `"state":"off"`) {
			t.Errorf("events: %+v", page.Events)
		}
	})
}

// A redirect is not a success and is not followed; a target that does not answer
// is given up after 15 s; neither keeps another target waiting.
func TestOneTargetDoesNotHoldUpAnother(t *testing.T) {
	virtual(t, func(h *fixture) {
		hanging := &target{answer: func(_ int, r *http.Request) (*http.Response, error) {
			switch r.URL.Host {
			case "hangs.test":
				<-r.Context().Done()
				return nil, r.Context().Err()
			case "moved.test":
				return status(308, "Location", "https://good.test/")
			}
			return status(200)
		}}
		hangs, moved := h.addWebhook("hangs").WebhookID, h.addWebhook("moved").WebhookID
		good := h.addWebhook("good").WebhookID
		began := time.Now()
		h.addEvents(20)
		defer h.startDeliverer(hanging, nil)()
		h.eventually("delivery", func() bool { return len(hanging.deliveriesTo("good.test")) == 20 })
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the good one waited %v", took)
		}
		h.eventually("the first failure", func() bool { return h.webhook(hangs).Failures > 0 })
		if took := time.Since(began); took < 15*time.Second || took > 17*time.Second ||
			h.webhook(hangs).LastError != "no answer within 15s" {
			t.Errorf("after %v: %+v", took, h.webhook(hangs))
		}
		if w := h.webhook(moved); !strings.Contains(w.LastError, "redirects are not followed") || w.LastStatus != 308 {
			t.Errorf("the one that moved: %+v", w)
		}
		if w := h.webhook(good); w.Failures != 0 {
			t.Errorf("the good one: %+v", w)
		}
	})
}

// deliveriesTo are the requests for one host.
func (g *target) deliveriesTo(host string) []delivery {
	return slices.DeleteFunc(g.deliveries(), func(a delivery) bool { return a.host != host })
}
