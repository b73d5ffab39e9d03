package settings

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// A pool has the limits of its a2a, and else those of the tasks of its role.
func TestA2APools(t *testing.T) {
	const file = `timeout: 3h
stall_after: 9m
lease: {window: 90s}
budget: {default: {tokens: 77}}
agents:
  full:
    role_id: coder
    capabilities: [go, go/1.26, a.name]
    a2a: {enabled: true, budget: 0.5, max_queue: 20, timeout: 90s, review: human}
    budget: 4
    timeout: 1h
    stall_after: 3m
    retry: {max_attempts: 5, on: [crash]}
    escalate: fail
    review: none
    on_exit: complete
    card: {name: Coder, organization: Example, organization_url: "https://example.com"}
    skills: {go/1.26: {name: Go, input_modes: [text/plain; charset=utf-8]}, a.name: {}}
  least: {a2a: {enabled: true, budget: 0, max_queue: 100000}}
  preset: {launch: {preset: claude}, timeout: 2m, review: none,
    a2a: {enabled: true, budget: 2, max_queue: 1, reused_message_ids: true}}
  off: {a2a: {budget: 3, max_queue: 3}}
  none: {}
`
	got, err := loadFile(t, file)
	if err != nil {
		t.Fatal(err)
	}
	full := picket.TaskSpec{Role: "coder",
		LeaseWindowSeconds: new(90), TimeoutSeconds: new(90), StallAfterSeconds: new(180),
		BudgetEnvelope: &budget.Envelope{USD: 5e8, Tokens: 77},
		Retry:          &picket.Retry{MaxAttempts: new(5), On: []picket.ExitClass{picket.ExitCrash}},
		Escalate:       picket.EscalateFail, Review: picket.ReviewByHuman, OnExit: picket.OnExitComplete}
	least := picket.TaskSpec{Role: "least",
		LeaseWindowSeconds: new(90), TimeoutSeconds: new(10800), StallAfterSeconds: new(540),
		BudgetEnvelope: &budget.Envelope{Tokens: 77}, Review: picket.ReviewByHuman}
	preset := picket.TaskSpec{Role: "preset",
		LeaseWindowSeconds: new(90), TimeoutSeconds: new(120), StallAfterSeconds: new(540),
		BudgetEnvelope: &budget.Envelope{USD: 2e9, Tokens: 77}, Review: picket.ReviewByNone}
	want := []A2APool{
		{Agent: "full", Role: "coder", Task: full, MaxQueue: 20, Capabilities: []string{"go", "go/1.26", "a.name"},
			Card: Card{Name: "Coder", Organization: "Example", OrganizationURL: "https://example.com"},
			Skills: map[string]Skill{"go/1.26": {Name: "Go", InputModes: []string{"text/plain; charset=utf-8"}},
				"a.name": {}}},
		{Agent: "least", Role: "least", Task: least, MaxQueue: 100_000},
		{Agent: "preset", Role: "preset", Task: preset, MaxQueue: 1, ReusedMessageIDs: true, Preset: "claude"},
	}
	pools := got.A2APools()
	if len(pools) != len(want) {
		t.Fatalf("%d pools, want %d: %+v", len(pools), len(want), pools)
	}
	for i, p := range pools {
		if !reflect.DeepEqual(p, want[i]) {
			t.Errorf("got  %+v\nwant %+v", p, want[i])
		}
		p.Task.Title = "x"
		if err := p.Task.Normalize(); err != nil {
			t.Errorf("a task of %s is refused: %v", p.Role, err)
		}
	}
	if pools := (Settings{}).A2APools(); pools != nil {
		t.Errorf("without a file: %+v", pools)
	}
}

// Skills whose capabilities have dots do not get in each other's way, and are shown as they are written.
func TestKeysOfSkills(t *testing.T) {
	got, err := loadFile(t, "agents:\n  a:\n    capabilities: [b, b.name]\n"+
		"    skills:\n      b: {name: x}\n      b.name: {name: y}\n")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, s := range got.All() {
		shown[s.Name] = s.Text + " " + s.Origin
	}
	if shown["agents.a.skills.b.name"] != "x picket.yaml:5:11" ||
		shown["agents.a.skills.b.name.name"] != "y picket.yaml:6:16" {
		t.Errorf("%q", shown)
	}
	if keys := got.ChangedKeys(Settings{}); !slices.Contains(keys, "agents.a.skills.b.name.name") {
		t.Errorf("changed: %q", keys)
	}
}

func TestBadA2A(t *testing.T) {
	long := strings.Repeat("x", 1001)
	many := strings.Repeat("y, ", 10) + "y"
	media := strings.Repeat("a/b, ", 20) + "a/b"
	for rest, want := range map[string][2]string{
		"a2a: {enabled: yes}":  {`:4:11: agents.a.a2a.enabled: "yes" is neither true nor false`, ""},
		"a2a: {enabled: true}": {":4:5: agents.a.a2a.budget is missing: with a2a.enabled it has to limit what one task of a client may cost", "Add budget: 0.50 below a2a"},
		"a2a: {enabled: true, budget: 1}": {":4:5: agents.a.a2a.max_queue is missing: with a2a.enabled it has to limit how many tasks may wait",
			"Add max_queue: 100 below a2a"},
		"a2a: {enabled: true, budget: , max_queue: 1}":            {"agents.a.a2a.budget is missing", "Add budget"},
		"a2a: {budget: -1}":                                       {":4:11: agents.a.a2a.budget", ""},
		"a2a: {budget: much}":                                     {":4:11: agents.a.a2a.budget", ""},
		"a2a: {max_queue: 0}":                                     {`:4:11: agents.a.a2a.max_queue: "0" is not a number of tasks from 1 to 100000`, ""},
		"a2a: {max_queue: 100001}":                                {"is not a number of tasks from 1 to 100000", ""},
		"a2a: {timeout: 100ms}":                                   {":4:11: agents.a.a2a.timeout: 100ms is not a whole number of seconds", ""},
		"a2a: {review: parent}":                                   {`:4:11: agents.a.a2a.review: "parent" is not one of human, none`, ""},
		"a2a: {review: none}":                                     {":4:11: agents.a.a2a.review asks for less review than agents.a.review, which is human", "Leave a2a.review out."},
		"a2a: {review: none}\n    review: human":                  {":4:11: agents.a.a2a.review asks for less review", "Leave a2a.review out."},
		"a2a: {enable: true}":                                     {`:4:11: there is no key "enable" in agents.a.a2a`, `Did you mean "enabled"?`},
		"card: {name: ' '}":                                       {":4:12: agents.a.card.name: the text is empty", ""},
		"card: {name: " + long + "}":                              {":4:12: agents.a.card.name: the text has 1001 bytes, at most 128 are allowed", ""},
		"card: {name: \"a\\nb\"}":                                 {":4:12: agents.a.card.name: the text has a line break", ""},
		"card: {name: \"a\\u202eb\"}":                             {":4:12: agents.a.card.name: the text has", ""},
		"card: {description: " + long + long + "}":                {":4:12: agents.a.card.description: the text has 2002 bytes, at most 2000 are allowed", ""},
		"card: {description: \"a\\ab\"}":                          {"agents.a.card.description: the text has invisible characters", ""},
		"card: {organization: Example}":                           {":4:12: agents.a.card.organization is given without organization_url", "Add organization_url"},
		"card: {organization_url: 'http://e.x'}":                  {":4:12: agents.a.card.organization_url is given without organization,", "Add the name"},
		"card: {icon_url: icon.png}":                              {`:4:12: agents.a.card.icon_url: "icon.png" is not a URL`, ""},
		"card: {icon_url: 'data:image/png;base64,aa'}":            {"agents.a.card.icon_url", ""},
		"card: {documentation_url: 'http://u:hush@x'}":            {":4:12: agents.a.card.documentation_url: the URL has a user name or a password", ""},
		"card: {icon_url: 'http://x/" + long + long + long + "'}": {"agents.a.card.icon_url: the URL has 3012 bytes, at most 2048 are allowed", ""},
		"skills: {reviw: {}}":                                     {":4:14: agents.a.skills.reviw describes a capability that agents.a.capabilities does not list", "Did you mean review? Add reviw to agents.a.capabilities"},
		"skills: {go/2: {}}":                                      {":4:14: agents.a.skills.go/2 describes a capability", "Add go/2 to agents.a.capabilities, or remove the skill."},
		"skills: {'g o': {}}":                                     {":4:14: g o is not a valid capability", "Use 1 to 64 letters"},
		"skills: {go: {nam: x}}":                                  {`:4:19: there is no key "nam" in agents.a.skills.go`, `Did you mean "name"?`},
		"skills: {go: {description: ''}}":                         {":4:19: agents.a.skills.go.description: the text is empty", ""},
		"skills: {go: {examples: [" + many + "]}}":                {":4:19: agents.a.skills.go.examples has 11 items, at most 10 are allowed", "Keep the 10"},
		"skills: {go: {examples: [" + long + "]}}":                {":4:19: agents.a.skills.go.examples: the text has 1001 bytes, at most 1000", ""},
		"skills: {go: {input_modes: text}}":                       {`:4:19: agents.a.skills.go.input_modes: "text" is not a media type`, ""},
		"skills: {go: {output_modes: [a/b, '/']}}":                {`:4:19: agents.a.skills.go.output_modes: "/" is not a media type`, ""},
		"skills: {go: {output_modes: [" + media + "]}}":           {":4:19: agents.a.skills.go.output_modes has 21 items, at most 20 are allowed", "Keep the 20"},
		"a2a: {enabled: true, budget: 1, max_queue: 1}\n  b: {role_id: a, a2a: {enabled: true, budget: 1, max_queue: 1}}": {
			":5:7: the role a is that of agents.a already", "one pool"},
	} {
		_, err := loadFile(t, "agents:\n  a:\n    capabilities: [go, review]\n    "+rest)
		if err == nil {
			t.Errorf("%s is allowed", rest)
		} else if !strings.Contains(exit.Text(err), want[0]) || exit.Code(err) != exit.Usage ||
			!strings.Contains(exit.Remedy(err), want[1]) || (want[1] != "") != (exit.Remedy(err) != "") {
			t.Errorf("%s:\n     %v (fix: %s)\nwant %q, fix %q", rest, err, exit.Remedy(err), want[0], want[1])
		}
	}
}

// public_url is a base to which paths can be appended, and is written in one way.
func TestPublicURL(t *testing.T) {
	for given, want := range map[string]string{
		"https://agents.example.com":            "https://agents.example.com",
		"HTTPS://Agents.Example.com:8443/":      "https://agents.example.com:8443",
		"https://agents.example.com/Picket/a//": "https://agents.example.com/Picket/a",
		"http://127.0.0.1:7070":                 "http://127.0.0.1:7070",
		"http://[::1]:7070/":                    "http://[::1]:7070",
	} {
		t.Setenv("PICKET_PUBLIC_URL", given)
		got, err := loadFile(t, "public_url: https://elsewhere.example")
		if err != nil || got.PublicURL != want || got.PublicBase("http://127.0.0.1:1") != want {
			t.Errorf("%s: %q, %v; want %q", given, got.PublicURL, err, want)
		}
	}
	t.Setenv("PICKET_PUBLIC_URL", "")
	for given, want := range map[string]string{
		"agents.example.com":       "is not a URL such as",
		"ftp://agents.example.com": "is not a URL such as",
		"http://:7070":             "is not a URL such as",
		"http://x:70700":           "has the port 70700",
		"https://u:hush@x":         "has a user name or a password",
		"https://x?":               "has a query or a fragment",
		"https://x/#":              "has a query or a fragment",
		"https://x/a?b=c":          "has a query or a fragment",
		"https://x/a//b":           "has a path that proxies rewrite",
		"https://x/../b":           "has a path that proxies rewrite",
		"https://x/a%2fb":          "has a path that proxies rewrite",
	} {
		_, err := loadFile(t, "", "--public-url", given)
		if text := exit.Text(err); !strings.HasPrefix(text, "public_url (from --public-url): ") ||
			!strings.Contains(text, want) || strings.Contains(text, "hush") {
			t.Errorf("%s: %v, want %q", given, err, want)
		}
	}
	got, err := loadFile(t, "allowed_hosts: a.example\npublic_url: https://B.example/x/\n")
	if err != nil || !slices.Equal(got.ServedHosts(), []string{"a.example", "b.example"}) {
		t.Errorf("hosts %q, %v", got.ServedHosts(), err)
	}
	got, err = loadFile(t, "allowed_hosts: a.example")
	if err != nil || got.PublicBase("http://127.0.0.1:7070/") != "http://127.0.0.1:7070" ||
		!slices.Equal(got.ServedHosts(), []string{"a.example"}) {
		t.Errorf("%q, %q, %v", got.PublicBase("http://127.0.0.1:7070/"), got.ServedHosts(), err)
	}
}
