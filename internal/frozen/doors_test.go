package frozen

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestDoors keeps what is reached by other ways than the HTTP API: the tools of the
// MCP endpoint, the login of the console with its cookie and its events, and the
// exit codes of the command.
func TestDoors(t *testing.T) {
	s := startServer(t)
	lines := mcpLines(s)
	lines = append(lines, loginLines(s)...)
	lines = append(lines, exitLines(s)...)
	compare(t, "doors", lines)
}

// mcpLines lists the tools that a lease sees, with the names of their arguments.
func mcpLines(s *server) []string {
	s.post("/api/v1/tasks", http.StatusCreated, object{"title": "one", "role": "mcp"})
	answer := s.post("/api/v1/leases", 0, object{"agentId": "hand", "role": "mcp"})
	token := answer["leases"].([]any)[0].(object)["leaseToken"].(string)
	session, _ := s.mcp(token, "", "initialize", object{"protocolVersion": "2025-06-18", "capabilities": object{},
		"clientInfo": object{"name": "frozen", "version": "1"}})
	_, result := s.mcp(token, session, "tools/list", object{})
	var lines []string
	for _, tool := range result["tools"].([]any) {
		tool := tool.(object)
		line := fmt.Sprintf("mcp %s", tool["name"])
		lines = append(lines, line)
		schema := tool["inputSchema"].(object)
		properties, _ := schema["properties"].(object)
		for name := range properties {
			lines = append(lines, line+" "+name)
		}
		for _, name := range list(schema["required"]) {
			lines = append(lines, fmt.Sprintf("%s requires %v", line, name))
		}
	}
	return lines
}

func list(value any) []any {
	values, _ := value.([]any)
	return values
}

// mcp calls one method of the MCP endpoint; its result is the data of one event.
func (s *server) mcp(token, session, method string, params object) (string, object) {
	s.t.Helper()
	body, err := stdjson.Marshal(object{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		s.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/mcp", bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		request.Header.Set("Mcp-Session-Id", session)
	}
	response, text := s.send(http.DefaultClient, request)
	var answer struct{ Result object }
	start := strings.Index(text, "{")
	if start < 0 || stdjson.Unmarshal([]byte(strings.TrimSpace(text[start:])), &answer) != nil || answer.Result == nil {
		s.t.Fatalf("%s: %s %s", method, response.Status, text)
	}
	return response.Header.Get("Mcp-Session-Id"), answer.Result
}

func (s *server) send(client *http.Client, request *http.Request) (*http.Response, string) {
	s.t.Helper()
	response, err := client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response, string(text)
}

// loginLines signs in at the console and out again. It lists the names and
// attributes of the cookies, and the events with their members.
func loginLines(s *server) []string {
	before := len(list(s.get("/api/v1/events?limit=200")["events"]))
	_, port, _ := strings.Cut(strings.TrimPrefix(s.url, "http://"), ":")
	p := &person{server: s, host: "localhost:" + port}
	answer, _ := p.visit(http.MethodPost, "/console/login", url.Values{"key": {s.key}, "next": {"/console/"}})
	to, err := url.Parse(answer.Header.Get("Location"))
	if err != nil || to.Host == "" {
		s.t.Fatalf("sign in: %s, Location %q", answer.Status, answer.Header.Get("Location"))
	}
	p.host = to.Host
	p.visit(http.MethodGet, to.RequestURI(), nil)
	p.visit(http.MethodPost, "/console/logout", url.Values{})
	events := list(s.get("/api/v1/events?limit=200")["events"])[before:]
	for _, event := range events {
		event := event.(object)
		for _, name := range names("", event) {
			p.lines = append(p.lines, fmt.Sprintf("event %v %s", event["type"], name))
		}
	}
	return p.lines
}

// person is a browser at one host name.
type person struct {
	*server
	host    string
	cookies []*http.Cookie
	lines   []string
}

func (p *person) visit(method, path string, form url.Values) (*http.Response, string) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	request.Host = p.host
	request.Header.Set("Accept", "text/html")
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Sec-Fetch-Site", "same-origin")
	} else {
		request.Header.Set("Sec-Fetch-Mode", "navigate")
		request.Header.Set("Sec-Fetch-Dest", "document")
	}
	for _, cookie := range p.cookies {
		request.AddCookie(cookie)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, text := p.send(client, request)
	for _, cookie := range answer.Cookies() {
		p.cookies = append(p.cookies, cookie)
		p.lines = append(p.lines, fmt.Sprintf("cookie %s path=%s httponly=%t samesite=%d secure=%t domain=%q",
			shape(cookie.Name), cookie.Path, cookie.HttpOnly, cookie.SameSite, cookie.Secure, cookie.Domain))
	}
	return answer, text
}

// exitLines runs commands that end in each of the ways that a script can branch on.
func exitLines(s *server) []string {
	done := s.post("/api/v1/tasks", http.StatusCreated, object{"title": "done"})["taskId"].(string)
	s.post("/api/v1/tasks/"+done+"/cancel", 0, object{"reason": "enough"})
	var lines []string
	for _, command := range []string{
		"task list",
		"task list --no-such-flag",
		"task cancel",
		"no-such-command",
		"task get task_00000000000000000000000000",
		"task cancel " + done,
		"run -- true",
		"run --usd 1",
		"handoff claim " + done,
		"review approve " + done,
		"conformance rfc16 --list",
		"conformance heartbeat --list",
		"conformance no-such-suite",
		"config show",
		"--url http://127.0.0.1:9 task list",
		"--config /no/such/file task list",
	} {
		lines = append(lines, fmt.Sprintf("exit %d: picket %s", s.run(command), shape(command)))
	}
	return lines
}

// run returns the exit code of a command with the key of the server.
func (s *server) run(command string) int {
	s.t.Helper()
	path, err := binary()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.CommandContext(s.t.Context(), path, strings.Fields(command)...)
	cmd.Dir = s.t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "PICKET_URL=" + s.url, "PICKET_API_KEY=" + s.key}
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}
