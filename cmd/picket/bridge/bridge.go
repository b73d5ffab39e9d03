// Package bridge passes MCP messages between the standard streams and the tool proxy.
//
// It does not use the transports of the MCP Go SDK (v1.8.0), because they would not make it
// smaller:
//
//   - mcp.StreamableClientTransport gets the negotiated version and the schemas of tools from
//     unexported hooks of mcp.ClientSession. Without a session it sends no header
//     Mcp-Protocol-Version, no headers Mcp-Param, and opens no stream for messages of the
//     server. The bridge would still have to do all three.
//   - The transport drops the body of a refusal, which has the code and the remedy, and then
//     ends the whole connection.
//   - mcp.IOTransport ends at a line that is not a message. The bridge answers it with an error.
//
// A session on each side (mcp.Server and mcp.Client) would have to know every method and every
// notification of both versions of the protocol, and would drop all others.
package bridge

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// New is `picket mcp`: it passes MCP messages between the standard streams and the tool proxy.
func New() *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Serve the tools of this run over MCP on standard input and output (for agents)",
		Args:  cli.CheckArgs(cobra.NoArgs),
		Long: "Serve MCP on standard input and output, for agents that start their MCP servers as commands.\n" +
			"Messages are passed to the tool proxy with the lease in the environment. The command ends when\n" +
			"its input ends.",
		Example: `  picket run -- my-agent --mcp-server "picket mcp"
  claude mcp add picket -- picket mcp`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := bridgeFromEnvironment()
			if err != nil {
				return err
			}
			b.out, b.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return b.run(ctx, cmd.InOrStdin())
		},
	}
}

// bridgeFromEnvironment leads to the MCP server of the environment's lease.
func bridgeFromEnvironment() (*mcpBridge, error) {
	url, token := os.Getenv("PICKET_MCP_URL"), os.Getenv("PICKET_LEASE_TOKEN")
	if proxy := os.Getenv("PICKET_PROXY_URL"); proxy != "" {
		url = cmp.Or(url, strings.TrimSuffix(proxy, "/")+"/mcp")
	}
	if url == "" || token == "" {
		return nil, picket.Refuse(exit.CodeUsage,
			"Let an agent start it as its MCP server, inside a run: picket run -- my-agent; the run's environment has the lease.",
			"there is no lease in the environment (PICKET_MCP_URL or PICKET_PROXY_URL, and PICKET_LEASE_TOKEN)")
	}
	return newMCPBridge(url, picket.Secret(token), os.Getenv("PICKET_FENCING_TOKEN")), nil
}

// run passes messages until the input ends and what was asked is answered, or
// ctx ends.
func (b *mcpBridge) run(ctx context.Context, in interface{ Read([]byte) (int, error) }) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan []byte)
	failed := make(chan error, 1)
	go func() { failed <- readMessages(ctx, in, lines) }()
	for {
		select {
		case <-ctx.Done():
			b.closeSession()
			return nil
		case line, more := <-lines:
			if more {
				b.forwardLine(ctx, line)
				continue
			}
			b.pending.Wait()
			cancel()
			b.closeSession()
			return <-failed
		}
	}
}
