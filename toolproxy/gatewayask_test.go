//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package toolproxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// answeringClient is a client that can be asked everything.
func answeringClient(name string) *mcp.ClientOptions {
	return &mcp.ClientOptions{
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{
				Role:  "assistant",
				Model: "m",
				Content: &mcp.TextContent{
					Text: name + " heard " + r.Params.Messages[0].Content.(*mcp.TextContent).Text,
				},
				Meta: mcp.Meta{"mine/secret": 1},
			}, nil
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{
				Action:  "accept",
				Content: map[string]any{"name": name},
				Meta:    mcp.Meta{"mine/secret": 1},
			}, nil
		},
		Capabilities: &mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}},
	}
}

// What an upstream of the older wire asks while it works goes to the session
// whose call it is, and to no other.
func TestAnUpstreamAsksWhileItWorks(t *testing.T) {
	o := newFakeUpstream()
	p := newFakeEnvelope(100 * cent)
	b := newGatewayEnv(t, p, mcppart.Upstream{Name: "up", URL: o.listen(t, protocolVersions[0])})
	for _, name := range []string{"anna", "berta"} {
		s := connect(t, b.url, b.token(), protocolVersions[0], answeringClient(name))
		for tool, want := range map[string]string{
			"up_sample": name + " heard say hello",
			"up_elicit": "accept " + name,
		} {
			if r := call(t, s, tool, nil); r.IsError || resultText(t, r) != want {
				t.Errorf("%s: %+v, want %q", tool, r, want)
			}
		}
	}
	// Anyone who cannot be asked is not asked, and nobody else is in its place.
	for _, wire := range protocolVersions {
		s := connect(t, b.url, b.token(), wire, nil)
		if r := call(t, s, "up_elicit", nil); !r.IsError {
			t.Errorf("%s: an answer came from somewhere: %+v", wire, r)
		}
	}
	p.expectSettled(t, 6*cent)
}

// Clients leave sessions behind: those that are idle make room.
func TestManySessionsCanBeAsked(t *testing.T) {
	o := newFakeUpstream()
	b := newGatewayEnv(t, newFakeEnvelope(1000*cent),
		mcppart.Upstream{Name: "up", URL: o.listen(t, protocolVersions[0])})
	first := connect(t, b.url, b.token(), protocolVersions[0], answeringClient("first"))
	for i := range 12 {
		name := fmt.Sprint("client ", i)
		s := connect(t, b.url, b.token(), protocolVersions[0], answeringClient(name))
		if r := call(t, s, "up_elicit", nil); r.IsError || resultText(t, r) != "accept "+name {
			t.Fatalf("%s: %+v", name, r)
		}
	}
	if r := call(t, first, "up_elicit", nil); r.IsError || resultText(t, r) != "accept first" {
		t.Errorf("one that had made room: %+v", r)
	}
}

// An upstream may close the stream of a call and be asked for the rest.
func TestABrokenStreamIsResumed(t *testing.T) {
	b := newGatewayEnv(t, newFakeEnvelope(100*cent),
		mcppart.Upstream{Name: "up", URL: newFakeUpstream().listen(t, protocolVersions[0])})
	for _, wire := range protocolVersions {
		if r := call(t, connect(t, b.url, b.token(), wire, nil), "up_drop", nil); r.IsError ||
			resultText(t, r) != "resumed" {
			t.Errorf("%s: %+v", wire, r)
		}
	}
}

func TestRootsOfTheClient(t *testing.T) {
	o := newFakeUpstream()
	b := newGatewayEnv(t, newFakeEnvelope(100*cent),
		mcppart.Upstream{Name: "up", URL: o.listen(t, protocolVersions[0])})
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	client.AddRoots(&mcp.Root{URI: "file:///work"})
	s := connectAs(t, client, b.url, b.token(), protocolVersions[0])
	if r := call(t, s, "up_roots", nil); r.IsError || resultText(t, r) != "file:///work" {
		t.Errorf("%+v", r)
	}
}

// What an upstream of the newer wire asks in its result goes to a client of
// that wire as it is; one with a session is asked on the way. Either way the
// call is charged once.
func TestAnUpstreamAsksInItsResult(t *testing.T) {
	for _, wire := range protocolVersions {
		t.Run(wire, func(t *testing.T) {
			o := newFakeUpstream()
			p := newFakeEnvelope(100 * cent)
			b := newGatewayEnv(t, p, mcppart.Upstream{Name: "up", URL: o.listen(t, protocolVersions[1])})
			s := connect(t, b.url, b.token(), wire, answeringClient("anna"))
			params := &mcp.CallToolParams{Name: "up_input", Meta: mcp.Meta{mcppart.MetaKey: "k1"}}
			for range 2 {
				r, err := s.CallTool(t.Context(), params)
				if err != nil || r.IsError || resultText(t, r) != "second anna anna" {
					t.Fatalf("%v %+v", err, r)
				}
			}
			if o.count() != 3 {
				t.Errorf("%d messages reached the upstream, want three rounds of one call", o.count())
			}
			p.expectSettled(t, cent)
		})
	}
	t.Run("nobody to ask", func(t *testing.T) {
		o := newFakeUpstream()
		b := newGatewayEnv(t, newFakeEnvelope(100*cent),
			mcppart.Upstream{Name: "up", URL: o.listen(t, protocolVersions[1])})
		r := call(t, connect(t, b.url, b.token(), protocolVersions[0],
			&mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}), "up_input", nil)
		if code, remedy := refusal(t, r); code != "upstream_failed" || !strings.Contains(remedy, "can be asked") {
			t.Errorf("%s: %s", code, remedy)
		}
	})
}

func TestPromptsAndResourcesOfAnUpstream(t *testing.T) {
	forEachProtocolPair(t, func(t *testing.T, wire string, _ *fakeUpstream, url string) {
		p := newFakeEnvelope(2 * cent)
		b := newGatewayEnv(t, p, mcppart.Upstream{Name: "up", URL: url})
		s := connect(t, b.url, b.token(), wire, nil)
		g, err := s.GetPrompt(t.Context(),
			&mcp.GetPromptParams{Name: "up_greet", Arguments: map[string]string{"who": "anna"}})
		if err != nil || g.Messages[0].Content.(*mcp.TextContent).Text != "greet anna" {
			t.Fatalf("%v %+v", err, g)
		}
		r, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "other://thing"})
		if err != nil || r.Contents[0].Text != "a thing" || r.Contents[0].Meta != nil {
			t.Fatalf("%v %+v", err, r)
		}
		p.expectSettled(t, 2*cent)
		if _, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "up_greet"}); err == nil ||
			!strings.Contains(err.Error(), "budget_exceeded") {
			t.Errorf("on an empty envelope: %v", err)
		}
	})
}

func TestChangesOfAResourceAreTold(t *testing.T) {
	forEachProtocolPair(t, func(t *testing.T, wire string, o *fakeUpstream, url string) {
		d := newFakeEnvelope(cent)
		b := newGatewayEnv(t, d, mcppart.Upstream{Name: "up", URL: url})
		changed := make(chan string, 10)
		s := connect(t, b.url, b.token(), wire,
			&mcp.ClientOptions{
				ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
					changed <- r.Params.URI
				},
			})
		if err := s.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "other://thing"}); err != nil {
			t.Fatal(err)
		}
		// The newer wire answers before the upstream has been asked.
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					_ = o.server.ResourceUpdated(context.Background(),
						&mcp.ResourceUpdatedNotificationParams{URI: "other://thing"})
				}
			}
		}()
		if got := receive(t, changed, "the change"); got != "other://thing" {
			t.Errorf("%s has changed", got)
		}
	})
}

// A lease that does not hold reaches no upstream, whatever it asks for.
func TestAStaleLeaseReachesNoUpstream(t *testing.T) {
	for _, wire := range protocolVersions {
		t.Run(wire, func(t *testing.T) {
			inMemory(t, func(h *engineEnv) {
				o := newFakeUpstream()
				h.submit()
				l := h.lease()
				b := newGatewayEnv(t, h.Engine, mcppart.Upstream{Name: "up", URL: o.listen(t, protocolVersions[1])})
				s := connect(t, b.url, l.LeaseToken.Reveal(), wire, nil)
				if r := call(t, s, "up_echo", map[string]any{"n": 1}); r.IsError || o.count() != 1 {
					t.Fatalf("under a good lease: %+v, %d calls", r, o.count())
				}
				h.expire()
				lost := func(want string) {
					t.Helper()
					if code, remedy := refusal(t, call(t, s, "up_echo", nil)); code != want || remedy == "" {
						t.Errorf("%s, want %s; %s", code, want, remedy)
					}
					if _, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "up_greet"}); err == nil ||
						!strings.Contains(err.Error(), want) {
						t.Errorf("a prompt: %v", err)
					}
					if _, err := s.ReadResource(t.Context(),
						&mcp.ReadResourceParams{URI: "other://thing"}); err == nil ||
						!strings.Contains(err.Error(), want) {
						t.Errorf("a resource: %v", err)
					}
				}
				lost("lease_expired")
				next := h.lease()
				lost("stale_fence")
				_, err := h.Release(h.ctx, h.held(next), picket.Exit{Class: picket.ExitReleased})
				h.ok(err)
				released := connect(t, b.url, next.LeaseToken.Reveal(), wire, nil)
				if code, _ := refusal(t, call(t, released, "up_echo", nil)); code != "lease_released" {
					t.Errorf("a lease given back: %s", code)
				}
				foreign := connect(t, b.url,
					h.sealer.LeaseToken("default", next.TaskID, "run_01JZZZZZZZZZZZZZZZZZZZZZZZ").
						Reveal(), wire, nil)
				if r := call(t, foreign, "up_echo", nil); !r.IsError {
					t.Errorf("a lease nobody granted: %+v", r)
				}
				if o.count() != 1 {
					t.Errorf("%d calls reached the upstream", o.count())
				}
			})
		})
	}
}
