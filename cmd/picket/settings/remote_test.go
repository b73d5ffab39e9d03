package settings

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// A foreign agent is reached by https, or where the operator has allowed it.
func TestForeignAgents(t *testing.T) {
	for _, remote := range []string{
		"{url: https://agents.example.com/builder}",
		"{url: https://agents.example.com, token_env: PARTNER}",
		"{url: 'http://127.0.0.1:7070/agents/builder', allow: [127.0.0.1]}",
		"{url: 'http://127.0.0.1:7070/agents/builder', allow: ['127.0.0.1:7070']}",
		"{url: 'http://127.0.0.1:7070/agents/builder', allow: [127.0.0.0/8]}",
		"{url: 'http://builder.internal', allow: ['*.internal']}",
		"{url: 'http://[::1]:7070', allow: ['::1']}",
		"{url: 'http://[::1]:7070', allow: ['[::1]:7070', '::/8']}",
	} {
		if _, err := loadFile(t, "agents:\n  a:\n    remote: "+remote); err != nil {
			t.Errorf("%s: %v", remote, err)
		}
	}
	for entry, want := range map[string][2]string{
		"remote: {token_env: PARTNER}":        {"picket.yaml:3:14: agents.a.remote.token_env is given without remote.url", "Add the URL"},
		"remote: {allow: [127.0.0.1]}":        {"picket.yaml:3:14: agents.a.remote.allow is given without remote.url", "Add the URL"},
		"remote: {url: agents.example.com}":   {"picket.yaml:3:14: agents.a.remote.url", ""},
		"remote: {url: 'ftp://example.com'}":  {"agents.a.remote.url", ""},
		"remote: {url: 'https://u:p@a.com'}":  {"agents.a.remote.url: the URL has a user name or a password", ""},
		"remote: {url: 'https://a.com/?x=1'}": {"picket.yaml:3:14: agents.a.remote.url has a query", "Write https://HOST"},
		"remote: {url: 'http://a.com'}":       {"picket.yaml:3:14: agents.a.remote.url is plain http", "or add a.com to remote.allow"},
		"remote: {url: 'http://127.0.0.1:1', allow: ['127.0.0.1:2']}": {
			"agents.a.remote.url is plain http", "add 127.0.0.1:1 to remote.allow"},
		"remote: {url: 'https://a.com', allow: ['a b']}":       {`agents.a.remote.allow: "a b" is neither a host`, ""},
		"remote: {url: 'https://a.com', allow: ['*']}":         {`agents.a.remote.allow: "*" is neither a host`, ""},
		"remote: {url: 'https://a.com', allow: [10.0.0.0/33]}": {`agents.a.remote.allow: "10.0.0.0/33" is neither a host`, ""},
		"remote: {url: 'https://a.com', token_env: 'pkk_x.y'}": {"agents.a.remote.token_env: the name of an environment variable is expected", ""},
		"remote: {url: 'https://a.com', token_env: PICKET_API_KEY}": {
			"agents.a.remote.token_env names a variable of Picket", "variable of another name"},
		"remote: {url: 'https://a.com'}\n    launch: {preset: claude}": {
			"picket.yaml:3:14: agents.a.remote.url is given beside launch", "Leave out launch"},
		"remote: {url: 'https://a.com'}\n    launch: {command: [./a]}": {"agents.a.remote.url is given beside launch", "Leave out launch"},
		"remote: {url: 'https://a.com'}\n    launch: {env: [HOME]}": {
			"agents.a.remote.url is given beside launch", "Leave out launch"},
		"remote: {url: 'https://a.com'}\n    session: {max: 1}": {"agents.a.session is given, and a worker of a foreign agent keeps no sessions", ""},
		"remote: {urls: x}": {`there is no key "urls" in agents.a.remote`, `"url"`},
	} {
		_, err := loadFile(t, "agents:\n  a:\n    "+entry)
		if err == nil || !strings.Contains(exit.Text(err), want[0]) || exit.Code(err) != exit.Usage ||
			!strings.Contains(exit.Remedy(err), want[1]) {
			t.Errorf("%q:\n     %v (fix: %s)\nwant %q, fix %q", entry, err, exit.Remedy(err), want[0], want[1])
		}
	}
}
