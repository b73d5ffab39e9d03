package sessions

import (
	"bytes"
	"encoding/hex"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
)

// admitted sends a prompt for which the server admits a capability.
func (s *scriptedServer) admitted(session, text, proxyURL string) string {
	return s.command(picket.SessionCommand{CommandID: "prompt_" + ulid.Make().String(), Command: picket.CommandPrompt,
		SessionID: session, Text: text, ExpiresInMs: time.Minute.Milliseconds(), Namespace: "default",
		ProxyURL: proxyURL})
}

// hashOf is the hash that came with every accepted result of a prompt.
func (s *scriptedServer) hashOf(id string) (hash string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.results[id] {
		if i > 0 && r.State == picket.PromptAccepted && r.CapabilityHash != hash {
			s.t.Errorf("the hash becomes %s, after %s", r.CapabilityHash, hash)
		}
		if r.State == picket.PromptAccepted {
			hash = r.CapabilityHash
		}
	}
	if sum, err := hex.DecodeString(hash); err != nil || len(sum) != 32 {
		s.t.Errorf("the hash is %q", hash)
	}
	return hash
}

// Each prompt and each wake of a resident session has a capability of its own.
func TestALineHasACapability(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	cfg := residentConfig(s, t.TempDir())
	cfg.ProxyURL = "http://own:1/"
	start(t, cfg)
	session := s.ids(0)[0]
	first := s.admitted(session, "access", "http://named:2")
	s.awaitEnd(first)
	s.answered(first, s.hashOf(first)+" http://named:2/agent/context "+first[7:])
	second := s.command(picket.SessionCommand{CommandID: "prompt_" + ulid.Make().String(), Command: picket.CommandWake,
		SessionID: session, Text: "access", ExpiresInMs: time.Minute.Milliseconds(), Namespace: "default"})
	s.awaitEnd(second)
	s.answered(second, s.hashOf(second)+" http://own:1/agent/context "+second[7:])
	if s.hashOf(first) == s.hashOf(second) {
		t.Error("two prompts have one capability")
	}
	last, answer := s.awaitEnd(s.prompt(session, "access", time.Minute)) // of a server that admits none
	if last.State != picket.PromptAnswered || answer != "none" {
		t.Errorf("%+v %q", last, answer)
	}
}

// lockedBuffer is written to by several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// talkativeProgram prints its capability wherever it can.
const talkativeProgram = `#!/bin/sh
case $2 in sum) answer=$(printf %s "$PICKET_SESSION_CAPABILITY" | sha256sum | cut -d' ' -f1) ;;
*) answer="it is $PICKET_SESSION_CAPABILITY." ;; esac
printf %s "$PICKET_SESSION_CAPABILITY" >>"$SECRETS"
echo "$@" >>arguments; tr '\0' ' ' </proc/$PPID/cmdline >>arguments
echo '{"type":"system","subtype":"init","session_id":"c1","mcp_servers":[]}'
echo "a line of log $PICKET_SESSION_CAPABILITY"
echo '{"type":"assistant","session_id":"c1","message":{"content":[{"type":"text","text":"'$answer'"}]}}'
echo "$PICKET_CONTEXT_URL $PICKET_PROXY_URL $PICKET_MCP_URL" >>urls
echo "it fails with $PICKET_SESSION_CAPABILITY" >&2
case $2 in fail) exit 1 ;; esac
echo '{"type":"result","session_id":"c1","result":"x","total_cost_usd":0.01}'
`

// A coding agent finds its capability in its environment. The secret itself is nowhere else: in no result, no
// argument, no file of the keeper, no output and no log.
func TestTheCapabilityIsInTheEnvironmentAlone(t *testing.T) {
	s, dir, output, log := newScriptedServer(t), t.TempDir(), &lockedBuffer{}, &lockedBuffer{}
	secrets := filepath.Join(t.TempDir(), "secrets")
	t.Setenv("SECRETS", secrets)
	cfg := resumableConfig(t, s, dir)
	if err := os.WriteFile(cfg.Command[0], []byte(talkativeProgram), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg.Env, cfg.Output = []string{"SECRETS"}, func(string) io.Writer { return output }
	cfg.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	k, end := start(t, cfg)
	session := s.ids(0)[0]
	summed := s.admitted(session, "sum", "http://named:2")
	s.awaitEnd(summed)
	s.answered(summed, s.hashOf(summed))
	s.answered(s.admitted(session, "tell", "http://named:2"), "it is [redacted].")
	if last, _ := s.awaitEnd(s.admitted(session, "fail", "http://named:2")); last.State != picket.PromptFailed ||
		!strings.Contains(last.Reason, "it fails with [redacted]") {
		t.Errorf("%+v", last)
	}
	urls, err := os.ReadFile(filepath.Join(k.sessionsDir(), session, workDir, "urls"))
	want := "http://named:2/agent/context http://named:2 http://named:2/mcp\n"
	if err != nil || !strings.HasPrefix(string(urls), want) {
		t.Errorf("the addresses are %q, %v", urls, err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	told, err := os.ReadFile(secrets)
	if err != nil || strings.Count(string(told), "pks_default.") != 3 {
		t.Fatalf("the agent got %q, %v", told, err)
	}
	seen := output.String() + log.String()
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		seen += string(text)
		return err
	})
	if err != nil || !strings.Contains(seen, "a line of log [redacted]") {
		t.Errorf("%v: %s", err, seen)
	}
	for _, secret := range strings.Split(string(told), "pks_")[1:] {
		if random := secret[strings.LastIndexByte(secret, '.')+1:]; strings.Contains(seen, random[:12]) {
			t.Errorf("the capability was seen in: %s", seen)
		}
	}
}

// Whatever keeps a session, its processes know it by a variable, by which the command line refuses the saved key of a
// person.
func TestEveryProcessKnowsItsSession(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]func(*testing.T, Server, string) Config{"resumable": resumableConfig,
		"streaming": streamingConfig} {
		t.Run(name, func(t *testing.T) {
			s := newScriptedServer(t)
			start(t, config(t, s, t.TempDir()))
			session := s.ids(0)[0]
			last, answer := s.awaitEnd(s.prompt(session, "session", time.Minute))
			if last.State != picket.PromptAnswered || !strings.Contains(answer, session) {
				t.Errorf("the prompt is %s: %s; the answer is %q", last.State, last.Reason, answer)
			}
		})
	}
}
