package heartbeat

import (
	"strings"
	"testing"
)

// Forbidden fields are found at any depth, in any spelling, with the surface that owns them.
func TestForbiddenFields(t *testing.T) {
	for _, c := range []struct{ front, want, surface string }{
		{"lease_duration: 5m", "forbidden_field lease_duration 2:1", "the lease API"},
		{"leaseDuration: 5m", "forbidden_field leaseDuration 2:1", "the lease API"},
		{"Lease-Duration: 5m", "forbidden_field Lease-Duration 2:1", "the lease API"},
		{"tasks: []", "forbidden_field tasks 2:1", "the task CLI and API"},
		{"preferences:\n  queue: mine", "forbidden_field preferences.queue 3:3", "the task CLI and API"},
		{"preferences:\n  cadence: 5m", "forbidden_field preferences.cadence 3:3", "the wake: settings of picket.yaml"},
		{"network: {greet: 1}", "forbidden_field network 2:1\nforbidden_field network.greet 2:11",
			"the agent registry and A2A"},
		{"model: big", "forbidden_field model 2:1", "agents.NAME.launch in picket.yaml"},
		{"tools: [sql]", "forbidden_field tools 2:1", "tools: in picket.yaml"},
		{"permissions: all", "forbidden_field permissions 2:1", "agents.NAME in picket.yaml"},
		{"mcp_servers: {}", "forbidden_field mcp_servers 2:1", "tools.upstreams in picket.yaml"},
		{"recurring: true", "forbidden_field recurring 2:1", "not supported"},
		{"context:\n  include:\n    - self\n  hooks: 1", "forbidden_field context.hooks 5:3",
			"agents.NAME in picket.yaml"},
		{"x:\n  - y:\n      - {z: {claim_token: 1}}",
			"unsupported_field x 2:1\nforbidden_field x[0].y[0].z.claim_token 4:14", "the lease API"},
		{"summary: {provider: x}", "invalid summary 2:1\nforbidden_field summary.provider 2:11",
			"agents.NAME.launch in picket.yaml"},
		{"version: {ttl: 1}", "invalid version 2:1\nforbidden_field version.ttl 2:11", "the lease API"},
	} {
		_, list := parse("---\n" + c.front + "\n---\n")
		if got := found(list); got != c.want {
			t.Errorf("%s\ngives %s\nwant  %s", c.front, got, c.want)
		}
		for _, d := range list {
			if (d.Code == CodeForbiddenField) != (d.OwnerSurface == c.surface) {
				t.Errorf("%s: owner surface %q of %s", c.front, d.OwnerSurface, d.Code)
			}
		}
	}
}

// Every name of the table is refused, and no name is in two rows or is a field of the format.
func TestTableOfAuthorities(t *testing.T) {
	fields, headings := map[string]bool{}, map[string]bool{}
	for _, a := range Authorities() {
		if a.Subject == "" || a.Surface == "" || len(a.Fields) == 0 || len(a.Headings) == 0 {
			t.Errorf("row %+v is not complete", a)
		}
		for _, name := range a.Fields {
			if fields[fieldName(name)] {
				t.Errorf("the field %s is there twice", name)
			}
			fields[fieldName(name)] = true
			_, list := parse("---\n" + name + ": 1\n---\n")
			if got := found(list); got != "forbidden_field "+name+" 2:1" || list[0].OwnerSurface != a.Surface {
				t.Errorf("field %s: %s", name, got)
			}
		}
		for _, name := range a.Headings {
			if headings[headingName(name)] {
				t.Errorf("the heading %s is there twice", name)
			}
			headings[headingName(name)] = true
			_, list := parse("Text\n\n## " + name + "\n")
			if got := found(list); got != "reserved_section 3:1" || list[0].OwnerSurface != a.Surface {
				t.Errorf("heading %s: %s", name, got)
			}
		}
	}
	for _, name := range strings.Fields("version enabled summary preferences min_interval active_hours quiet_windows " +
		"context include timezone start end") {
		if fields[fieldName(name)] {
			t.Errorf("the table forbids the field %s", name)
		}
	}
	Authorities()[0].Fields[0] = "changed"
	if authorities[0].Fields[0] == "changed" {
		t.Error("a caller can change the table")
	}
}
