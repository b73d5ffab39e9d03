package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// addReviewWithDiff makes a task in review, and answers the credential of its run.
func (p *fixture) addReviewWithDiff(diff string) (task string, held picket.LeaseCredential) {
	p.t.Helper()
	task = p.submit(`{"title":"x"}`)
	_, held = p.lease()
	if held.TaskID != task {
		p.t.Fatalf("leased %s", held.TaskID)
	}
	_, err := p.Complete(p.t.Context(), held, picket.Completion{Output: picket.RawJSON(`"done"`)})
	must(p.t, err)
	p.handInDiff(held, diff)
	return task, held
}

func (p *fixture) handInDiff(held picket.LeaseCredential, diff string) {
	p.t.Helper()
	must(p.t, p.RunEvidence(p.t.Context(), held, picket.Evidence{Branch: "b", Diff: diff}))
}

func (p *fixture) digest(task string) string {
	p.t.Helper()
	review, _ := p.want(200, "GET", "/api/v1/tasks/"+task, "reviewer", "").body["review"].(map[string]any)
	digest, _ := review["digest"].(string)
	if rows := p.want(200, "GET", "/api/v1/reviews", "reviewer", "").raw; digest == "" ||
		!strings.Contains(rows, digest) {
		p.t.Fatalf("the task says %q, the list %s", digest, rows)
	}
	return digest
}

// What is approved over HTTP is what was looked at, one by one and many at once.
func TestADecisionCarriesItsDigest(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		task, held := p.addReviewWithDiff("+good")
		other, _ := p.addReviewWithDiff("+other")
		shown, also := p.digest(task), p.digest(other)
		p.handInDiff(held, "+bad")
		now := p.digest(task)
		for _, verb := range []string{"approve", "reject"} {
			path := "/api/v1/reviews/" + task + "/" + verb
			stale := p.wantCode(picket.CodeVersion, "POST", path, "reviewer", `{"digest":"`+shown+`"}`)
			if stale.text("current") != now || stale.text("presented") != shown {
				t.Errorf("%s: %s", verb, stale.raw)
			}
			if none := p.wantCode(picket.CodePreconditionRequired, "POST", path, "reviewer",
				`{}`); none.text("current") != now {
				t.Errorf("%s: %s", verb, none.raw)
			}
			p.wantCode(picket.CodeValidation, "POST", path, "reviewer", `{"digest":"A B"}`)
		}
		many := fmt.Sprintf(`{"filter":{"taskIds":[%q,%q]},"count":2,"digests":{%q:%q,%q:%q}}`, task, other, task,
			shown, other, also)
		got := p.want(200, "POST", "/api/v1/reviews/approve", "reviewer", many, "Idempotency-Key", "many").raw
		want := fmt.Sprintf(`{"approved":[%q],"lost":[{"taskId":%q,"code":"version_conflict","by":"","digest":%q}]}`,
			other, task, now)
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		p.want(200, "POST", "/api/v1/reviews/"+task+"/approve", "reviewer", `{"digest":"`+now+`"}`)
		if log := p.want(200, "GET", "/api/v1/events?type=task.approved&after=0", "reviewer",
			"").raw; !strings.Contains(log, now) {
			t.Errorf("the event has no digest: %s", log)
		}
		if log := p.want(200, "GET", "/api/v1/events?type=run.evidence_replaced&after=0", "reviewer",
			"").raw; strings.Contains(log, "+bad") || !strings.Contains(log, held.RunID) {
			t.Errorf("the replacement is told as %s", log)
		}
	})
}

// A note is bounded alike by the API and by the engine, in bytes.
func TestTheNoteOfADecisionIsBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		task, _ := p.addReviewWithDiff("+good")
		path, digest := "/api/v1/reviews/"+task+"/approve", p.digest(task)
		body := func(n int) string { return fmt.Sprintf(`{"digest":%q,"note":%q}`, digest, strings.Repeat("n", n)) }
		p.wantCode(picket.CodeValidation, "POST", path, "reviewer", body(picket.MaxNote+1))
		p.want(200, "POST", path, "reviewer", body(picket.MaxNote))
	})
}
