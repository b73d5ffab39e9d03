package adapter_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/internal/rig/remains"
)

// TestMain is the test program, a shim or, as "agent NAME", one of the agents
// that the tests launch.
func TestMain(m *testing.M) {
	adapter.RunShim()
	if len(os.Args) >= 3 && os.Args[1] == "agent" {
		os.Exit(agentScripts[os.Args[2]]())
	}
	goleak.VerifyTestMain(remains.WithTempDir(m, "pk-adapter-"))
}

// agent is the command of a test agent.
func agent(name string) []string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{exe, "agent", name}
}

var agentScripts = map[string]func() int{
	"complete":             func() int { return completing(0) },
	"complete-then-crash":  func() int { return completing(3) },
	"complete-then-linger": func() int { completing(0); select {} },
	"complete-then-stay": func() int {
		signal.Ignore(syscall.SIGTERM)
		completing(0)
		select {}
	},
	"ask": func() int {
		_, err := leaseProxy().RequestHelp(context.Background(), picket.HelpRequest{Question: "which?"})
		return failed(err)
	},
	"fail": func() int {
		_, err := leaseProxy().Fail(context.Background(), "no idea", true)
		return failed(err)
	},
	"report": func() int {
		_, err := leaseProxy().Report(context.Background(), picket.Progress{Summary: "half way"})
		return failed(err)
	},
}

func completing(code int) int {
	if _, err := leaseProxy().Complete(context.Background(), picket.RawJSON(`{"answer":42}`), "done"); err != nil {
		return failed(err)
	}
	return code
}

// leaseProxy is the proxy of the lease in the environment, as an agent makes it.
func leaseProxy() *adapter.Proxy {
	return adapter.NewProxy(picket.Lease{
		LeaseToken: picket.Secret(os.Getenv("PICKET_LEASE_TOKEN")), FencingToken: 1,
	}, os.Getenv("PICKET_PROXY_URL"), nil)
}

func failed(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 9
}

// patience bounds what a test waits for; it is never waited in full unless the
// test fails.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
