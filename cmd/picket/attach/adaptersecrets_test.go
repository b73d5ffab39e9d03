package attach

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

const testRunKey = "pkk_a-run-key-of-the-handover-test"

// testWorker is a worker whose program is a shell script in the place of the
// adapter, and whose server makes run keys.
func testWorker(t *testing.T, script string) *adapterProcess {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	binary := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := serverThatAnswers(t, http.StatusCreated,
		`{"keyId": "key_1", "key": "`+testRunKey+`", "agentId": "a", "expiresAt": "2030-01-01T00:00:00Z"}`)
	return &adapterProcess{binary: binary, agent: "a", s: s, env: os.Environ()}
}

// serverThatAnswers gives every request the same answer.
func serverThatAnswers(t *testing.T, status int, body string) *cli.Connection {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(h.Close)
	return cli.NewConnection(h.URL, "pkk_the-key-of-the-person")
}

// startAndEnd starts the worker and waits until its process has ended. It
// answers the error of the start, and what the process printed.
func startAndEnd(t *testing.T, w *adapterProcess) (string, error) {
	t.Helper()
	err := w.start("task_1")
	if w.ended == nil {
		t.Fatalf("the process was not started: %v", err)
	}
	<-w.ended
	text, readErr := os.ReadFile(filepath.Join(w.dir, "stdout"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	return string(text), err
}

// Another process of the same user opens the descriptor of an adapter that is
// not hidden yet.
func TestTheDescriptorOfAHandoverCannotBeOpened(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("this system has no /proc")
	}
	w := testWorker(t, `cat "/proc/$$/fd/3" 2>&1; echo "picket: the thief is done" >&2; exit 3`)
	text, err := startAndEnd(t, w)
	if strings.Contains(text, testRunKey) || !strings.Contains(text, "No such device or address") {
		t.Errorf("another process read from the adapter's descriptor: %q", text)
	}
	if picket.CodeOf(err) != picket.CodeInternal ||
		!strings.Contains(err.Error(), "ended before it took its key: the thief is done") {
		t.Errorf("the start of an adapter that ended at once: %v", err)
	}
}

// Nothing is sent to an adapter that does not say that it is hidden.
func TestNoKeyIsSentBeforeTheAdapterIsHidden(t *testing.T) {
	hideTimeout = 300 * time.Millisecond
	defer func() { hideTimeout = 30 * time.Second }()
	text, err := startAndEnd(t, testWorker(t, `exec cat <&3`))
	if text != "" {
		t.Errorf("an adapter that is not hidden got %q", text)
	}
	if err == nil || !strings.Contains(err.Error(), "not hidden from other processes within 300ms") {
		t.Errorf("the start of an adapter that never says that it is hidden: %v", err)
	}
}

// An adapter that says that it is hidden gets the run key.
func TestAHiddenAdapterGetsTheRunKey(t *testing.T) {
	text, err := startAndEnd(t, testWorker(t, `printf x >&3; exec cat <&3`))
	if err != nil || !strings.Contains(text, testRunKey) {
		t.Errorf("it got %q: %v", text, err)
	}
}

// An answer without a run key may come from a wrong URL: the adapter does not
// get the key of the person instead.
func TestTheKeyOfThePersonIsNeverHandedOver(t *testing.T) {
	for status, body := range map[int]string{
		http.StatusNotFound:         `{"code": "not_found", "message": "no such route"}`,
		http.StatusMethodNotAllowed: `{"code": "method_not_allowed", "message": "not here"}`,
		http.StatusOK:               `{}`,
	} {
		s := serverThatAnswers(t, status, body)
		h, err := newAdapterSecrets(t.Context(), s, "a")
		if h != (adapterSecrets{}) || picket.CodeOf(err) != picket.CodeNotAvailable {
			t.Errorf("after %d it hands over %q: %v", status, h.Key.Reveal(), err)
			continue
		}
		if remedy := exit.Remedy(err); !strings.Contains(remedy, "picket adapter") ||
			!strings.Contains(err.Error(), s.URL()) {
			t.Errorf("after %d: %v\n%s", status, err, remedy)
		}
	}
}
