package frozen

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// server is a running `picket up` with a data directory of its own.
type server struct {
	t    *testing.T
	url  string
	data string
	key  string
	stop func() // stops the server, at most once
}

func startServer(t *testing.T) *server {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("the story needs redis-server on PATH")
	}
	home, err := os.MkdirTemp("", "frozen-home-")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, data: filepath.Join(home, "data")}
	cmd := exec.Command(path, "up", "--listen", "127.0.0.1:0", "--data", s.data)
	cmd.Dir, cmd.Env = home, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		_ = cmd.Wait()
	}
	t.Cleanup(func() { s.stop(); _ = os.RemoveAll(home) })
	line, _ := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if !ok {
		s.stop()
		t.Fatalf("picket up printed %q and not ready; stderr:\n%s", line, errors.String())
	}
	s.url = url
	key, err := os.ReadFile(filepath.Join(s.data, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	s.key = strings.TrimSpace(string(key))
	return s
}

type object = map[string]any

// call sends body with a token and returns the JSON answer. Status 0 takes any.
func (s *server) call(token, method, path string, status int, body any) object {
	s.t.Helper()
	var content io.Reader
	if body != nil {
		text, err := stdjson.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, content)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if strings.HasSuffix(path, "/top-up") {
		request.Header.Set("Idempotency-Key", "once")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if status != 0 && response.StatusCode != status {
		s.t.Fatalf("%s %s: status %d, want %d: %s", method, path, response.StatusCode, status, text)
	}
	answer := object{"status": response.StatusCode, "text": string(text)}
	_ = stdjson.Unmarshal(text, &answer)
	return answer
}

func (s *server) post(path string, status int, body any) object {
	s.t.Helper()
	return s.call(s.key, http.MethodPost, path, status, body)
}

func (s *server) get(path string) object {
	s.t.Helper()
	return s.call(s.key, http.MethodGet, path, http.StatusOK, nil)
}
