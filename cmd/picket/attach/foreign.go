package attach

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/cmd/picket/a2a/foreign"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// foreignLaunch is the launch of an entry whose tasks go to a foreign agent.
func foreignLaunch(cmd *cobra.Command, given []string, e settings.Agent) (launch, error) {
	if len(given) > 0 || cmd.Flags().Changed("agent") {
		return launch{}, picket.Refuse(exit.CodeUsage, "Leave it out, or use an entry without remote.",
			"an agent is named, and the workers of agents.%s pass their tasks on to %s", e.Name, e.Remote.URL)
	}
	if cmd.Flags().Changed("env") {
		return launch{}, exit.Usagef("--env has no meaning: the workers of agents.%s start no program", e.Name)
	}
	remote, err := foreign.NewRemote(cmd.Context(), e)
	return launch{foreign: remote}, err
}

// cancelPatience is how long a worker that ends tries to cancel what nobody waits for any more.
const cancelPatience = 10 * time.Second

// serveForeign has an adapter pass its tasks on to a foreign agent. stop ends that after the adapter has ended.
func serveForeign(ctx context.Context, conf *adapter.Config, r *foreign.Remote, s *cli.Connection) (stop func()) {
	l := foreign.NewLauncher(r, filepath.Join(settings.StateDir(), "foreign", r.Name), s.Client, conf.Log)
	conf.Launcher = l
	told := conf.OnEvent
	conf.OnEvent = func(e adapter.Event) {
		l.HandleEvent(e)
		if told != nil {
			told(e)
		}
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { l.CancelOpen(ctx, cancelPatience) })
	return func() {
		end()
		group.Wait()
		r.Close()
	}
}
