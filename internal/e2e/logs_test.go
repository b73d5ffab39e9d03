//go:build linux

package e2e

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// talkingAgent prints, waits, says its secret in two pieces, and fails the first time.
const talkingAgent = `
echo "hello of attempt $PICKET_FENCING_TOKEN"
echo ready >"$E2E/at"; read x <"$E2E/go"
printf '%s' "${PICKET_LEASE_TOKEN%????????????????}"; sleep 0.2; printf '%s\n' "${PICKET_LEASE_TOKEN#"${PICKET_LEASE_TOKEN%????????????????}"}"
printf 'stderr %s\n' "$PICKET_LEASE_TOKEN" >&2
[ "$PICKET_FENCING_TOKEN" = 1 ] && exit 1
picket tool mark_complete --output done >/dev/null
echo "after the result"`

// A log that is followed goes on over the runs of a task and ends with it; the
// reader is woken, it does not ask again and again. The token is hidden, also
// where it is cut.
func TestFollowedLog(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	at := w.fifo("at")
	w.fifo("go")
	s := spec("talks", 60)
	s.Retry = &picket.Retry{On: []picket.ExitClass{picket.ExitCrash}}
	task := w.submit(s)
	reader := w.start("reader", "task", "logs", "-f", task.TaskID)
	stamped := w.start("stamped", "task", "logs", "-f", "--timestamps", task.TaskID)
	w.worker("first", talkingAgent)
	at.take()
	hears := func(p *process, text string) {
		t.Helper()
		if !p.out.await(func(all string) bool { return strings.Contains(all, text) }) {
			t.Fatalf("%s has %q, want %q: %s", p.name, p.out.text(), text, p.err.text())
		}
	}
	hears(reader, "hello of attempt 1\n")
	first := w.start("first-run", "task", "logs", "-f", "--run", w.task(task.TaskID).CurrentRun.RunID, task.TaskID)
	w.give("go")
	at.take()
	hears(reader, "hello of attempt 2\n")
	w.give("go")
	for _, p := range []*process{reader, stamped, first} {
		if code := p.wait(); code != 0 {
			t.Errorf("%s ended with %d: %s", p.name, code, p.err.text())
		}
	}
	const one, two = "hello of attempt 1\n[redacted]\n", "hello of attempt 2\n[redacted]\nafter the result\n"
	if got := reader.out.text(); got != one+two {
		t.Errorf("the reader has %q", got)
	}
	if got := first.out.text(); got != one {
		t.Errorf("the reader of the first run has %q", got)
	}
	line := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z `)
	if got := stamped.out.text(); line.ReplaceAllString(got, "") != one+two ||
		len(line.FindAllString(got, -1)) != strings.Count(got, "\n") {
		t.Errorf("with times: %q", got)
	}
	if got := w.ok("task", "logs", "--stream", "stderr", task.TaskID); got != "stderr [redacted]" {
		t.Errorf("stderr: %q", got)
	}
	if n := w.counted(`route="/api/v1/tasks/:id/logs"`); n == 0 || n > 60 { // four readers, some pieces each
		t.Errorf("%d requests for logs", n)
	}
}

// counted is how many requests the server has counted under a label.
func (w *testEnv) counted(label string) int {
	w.t.Helper()
	return w.countedAt(w.url, label)
}

// countedAt is counted at one of several servers.
func (w *testEnv) countedAt(url, label string) int {
	w.t.Helper()
	total := 0
	for line := range strings.Lines(string(w.call(w.key, "GET", url+"/metrics", nil).body)) {
		if strings.HasPrefix(line, "picket_http_requests_total{") && strings.Contains(line, label) {
			n, err := strconv.ParseFloat(strings.Fields(line)[1], 64)
			w.must(err)
			total += int(n)
		}
	}
	return total
}
