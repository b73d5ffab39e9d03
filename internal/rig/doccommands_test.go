package rig

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Every command of the documents exists, with the flags it is shown with.
func TestDocumentedCommandsExist(t *testing.T) {
	SkipShort(t)
	binary := buildPicket(t)
	inText := regexp.MustCompile("(?m)`(?:bin/)?picket ([^`]*)`|^(?:bin/)?picket (.*)$")
	seen := map[string]bool{}
	for _, page := range documentPages(t) {
		for _, m := range inText.FindAllStringSubmatch(readPage(t, page), -1) {
			line := strings.TrimSpace(m[1] + m[2])
			if !seen[line] {
				seen[line] = true
				checkCommand(t, binary, page, line)
			}
		}
	}
	if len(seen) < 10 {
		t.Fatalf("only %d commands found in the documents", len(seen))
	}
}

// So does every command that the console tells people to run.
func TestCommandsOfTheConsoleExist(t *testing.T) {
	SkipShort(t)
	binary := buildPicket(t)
	inPage := regexp.MustCompile(`<code>(?:[A-Z_]+=\S+ )?picket ([^<{]*)`)
	pages, _ := filepath.Glob(filepath.Join(repoRoot(t), "orchestrator/console/templates", "*.html"))
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range inPage.FindAllStringSubmatch(string(text), -1) {
			seen++
			line := strings.NewReplacer(`"`, "", "…", "x").Replace(strings.TrimSpace(m[1]))
			checkCommand(t, binary, filepath.Base(page), strings.TrimSuffix(line, " --role"))
		}
	}
	if seen < 10 {
		t.Fatalf("only %d commands found in the console", seen)
	}
}

// checkCommand asks for the help of a command line and holds the usage it
// shows against the line. An unknown flag fails on its own.
func checkCommand(t *testing.T, binary, page, line string) {
	t.Helper()
	shown, _, _ := strings.Cut(line, " #")
	shown, _, _ = strings.Cut(shown, " -- ")
	words := strings.Fields(shown)
	out, err := exec.Command(binary, append(slices.Clone(words), "--help")...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: picket %s: %v\n%s", page, line, err, out)
		return
	}
	_, usage, _ := strings.Cut(string(out), "USAGE")
	_, usage, _ = strings.Cut(usage, "picket ")
	usage, _, _ = strings.Cut(usage, "\n")
	var path []string
	for _, w := range strings.Fields(usage) {
		if strings.ToUpper(w) == w || strings.ContainsAny(w, "[<-") {
			break
		}
		path = append(path, w)
	}
	_, after, holdsVerbs := strings.Cut(usage, "[command]")
	after = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(after), "[--flags]"))
	group := holdsVerbs && after == "" && len(words) > len(path) && !strings.HasPrefix(words[len(path)], "-")
	if len(path) == 0 || len(words) < len(path) || !slices.Equal(words[:len(path)], path) || group {
		t.Errorf("%s: there is no command picket %s; the nearest is picket %s", page, line, usage)
	}
}

// The examples of the protocol are one story. It is told to a server.
func TestProtocolExamplesRun(t *testing.T) {
	SkipShort(t)
	for _, tool := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the examples need %s", tool)
		}
	}
	home := t.TempDir()
	env := append(os.Environ(), "HOME="+home, "XDG_DATA_HOME=", "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "PICKET_URL=",
		"PICKET_API_KEY=")
	url := startPicketUp(t, buildPicket(t), env)
	script := "set -u\n" + strings.Replace(shellBlocks(t, "docs/protocol.md"), "http://127.0.0.1:7070", url, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run the examples: %v\n%s", err, out)
	}
	for _, want := range []string{
		`"fencingToken": 1`, `"leaseTtlMs":300000`, "204\n", `{"seq":1,"pinned":true}`, `{"state":"review"}`,
		`{"next":14}`,
		`"completed"`, `"task_closed"`, "task.leased leased\n", "task.approved completed\n", `["review","errand two"]`,
		`201 Created`, `["active",[{"command_id":"stop_task_01H001"`, `["draining",2]`, `["agent_billing_01",1]`,
		`"draining":1`, `["deregistered",3]`, `"secret":"whsec_`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the examples did not print %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// startPicketUp starts everything in one process on a free port and answers its URL.
func startPicketUp(t *testing.T, binary string, env []string) string {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(binary, "up", "--listen", "127.0.0.1:0")
	cmd.Env, cmd.Dir, cmd.Stderr = env, t.TempDir(), &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("start picket up: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("picket up did not stop cleanly: %v\n%s", err, log.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ready := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if !ready {
		t.Fatalf("picket up said %q (%v)\n%s", line, err, log.String())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return url
}

// shellBlocks joins the sh blocks of a document.
func shellBlocks(t *testing.T, document string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repoRoot(t), document))
	if err != nil {
		t.Fatal(err)
	}
	var blocks strings.Builder
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(text, -1) {
		blocks.Write(m[1])
	}
	return blocks.String()
}

// buildPicket returns the path of the command, which is built once for all tests.
func buildPicket(t *testing.T) string {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "picket-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir, "./cmd/picket", "./cmd/picket-conformance")
	if cmd.Dir, err = filepath.Abs("../.."); err != nil {
		return "", err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build picket: %w\n%s", err, out)
	}
	return filepath.Join(dir, "picket"), nil
})
