package adapter_test

import (
	"context"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// TestMain runs the tests or one of the agents that the tests launch.
func TestMain(m *testing.M) {
	proctest.Main(m, "pk-adapter-")
}

func init() {
	maps.Copy(proctest.Scripts, map[string]func() int{
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
			return proctest.Failed(err)
		},
		"fail": func() int {
			_, err := leaseProxy().Fail(context.Background(), "no idea", true)
			return proctest.Failed(err)
		},
		"report": func() int {
			_, err := leaseProxy().Report(context.Background(), picket.Progress{Summary: "half way"})
			return proctest.Failed(err)
		},
	})
}

func completing(code int) int {
	if _, err := leaseProxy().Complete(context.Background(), picket.RawJSON(`{"answer":42}`), "done"); err != nil {
		return proctest.Failed(err)
	}
	return code
}

// leaseProxy is the proxy of the lease in the environment, as an agent makes it.
func leaseProxy() *adapter.Proxy {
	return adapter.NewProxy(picket.Lease{
		LeaseToken: picket.Secret(os.Getenv("PICKET_LEASE_TOKEN")), FencingToken: 1,
	}, os.Getenv("PICKET_PROXY_URL"), nil)
}
