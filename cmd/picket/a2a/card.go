package a2a

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newCard() *cobra.Command {
	c := &cobra.Command{
		Use:   "card AGENT",
		Short: "Show the card of an agent: what it does, how it is reached and how clients authenticate",
		Example: "  picket a2a card builder\n" +
			"  picket a2a card https://agents.example.com/builder --json",
		Args: cli.CheckArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			format, err := term.FormatOf(cmd)
			if err != nil {
				return err
			}
			t, err := findTarget(cmd, given[0])
			if err != nil {
				return err
			}
			card, raw, err := agentclient.ReadCard(cmd.Context(), &t.Target)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			switch format {
			case "name":
				fmt.Fprintln(w, term.OneLine(card.Name))
				return nil
			case "table", "wide":
				printCard(w, card)
				return nil
			}
			if !jsontext.Value(raw).IsValid() {
				return agentclient.NotA2A("the card is not valid JSON")
			}
			return term.PrintValue(w, format, raw)
		},
	}
	return term.FormatFlag(c)
}

// printCard shows a card as a person reads it.
func printCard(w io.Writer, c *protocol.AgentCard) {
	d := term.NewDescription(w)
	d.Row("name", term.OneLine(c.Name))
	d.Add("description", term.OneLine(c.Description))
	d.Add("version", term.OneLine(c.Version))
	if c.Provider != nil {
		d.Add("provider", term.OneLine(c.Provider.Org+" "+c.Provider.URL))
	}
	d.Add("documentation", term.OneLine(c.DocumentationURL))
	for _, i := range c.SupportedInterfaces {
		if i != nil {
			d.Row("interface", term.OneLine(fmt.Sprintf("%s %s at %s", i.ProtocolBinding, i.ProtocolVersion, i.URL)))
		}
	}
	d.Row("streaming", yesNo(c.Capabilities.Streaming))
	d.Row("push notifications", yesNo(c.Capabilities.PushNotifications))
	d.Add("takes", term.OneLine(strings.Join(c.DefaultInputModes, ", ")))
	d.Add("answers with", term.OneLine(strings.Join(c.DefaultOutputModes, ", ")))
	d.Row("authentication", authentication(c))
	d.Print()
	if len(c.Skills) == 0 {
		return
	}
	fmt.Fprintln(w, d.Dim("skills"))
	for _, s := range c.Skills {
		name := d.Bold(term.OneLine(cmp.Or(s.Name, s.ID)))
		if s.ID != s.Name {
			name += " (" + term.OneLine(s.ID) + ")"
		}
		fmt.Fprintf(w, "  %s: %s\n", name, term.OneLine(s.Description))
		for _, example := range s.Examples {
			fmt.Fprintf(w, "    for example: %s\n", term.OneLine(example))
		}
	}
}

// authentication says how a client of the agent authenticates.
func authentication(c *protocol.AgentCard) string {
	if len(c.SecurityRequirements) == 0 {
		return "none"
	}
	var options []string
	for _, option := range c.SecurityRequirements {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(option)) {
			all = append(all, schemeText(string(name), c.SecuritySchemes[name]))
		}
		options = append(options, cmp.Or(strings.Join(all, " and "), "none"))
	}
	return term.OneLine(strings.Join(options, ", or "))
}

func schemeText(name string, s protocol.SecurityScheme) string {
	switch s := s.(type) {
	case protocol.APIKeySecurityScheme:
		return fmt.Sprintf("API key in the %s %s", s.Location, s.Name)
	case protocol.HTTPAuthSecurityScheme:
		return "HTTP " + s.Scheme
	case protocol.OAuth2SecurityScheme:
		return "OAuth 2.0"
	case protocol.OpenIDConnectSecurityScheme:
		return "OpenID Connect"
	case protocol.MutualTLSSecurityScheme:
		return "a client certificate"
	}
	return name
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
