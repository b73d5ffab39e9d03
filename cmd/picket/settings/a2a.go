package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/text"
)

// A2A is what clients of the A2A protocol may do with the pool of an entry. The server reads it.
type A2A struct {
	Enabled  bool            `yaml:"enabled" check:"yes_no" doc:"Whether A2A clients reach the pool of the role at an address of its own and can submit tasks there. The server reads it."`
	Budget   *budget.Money   `yaml:"budget" check:"dollars" doc:"The dollars that one task of a client may cost at most. It is required if a2a.enabled is true."`
	MaxQueue *int            `yaml:"max_queue" check:"queue" doc:"How many tasks may wait in the queue of the pool, 1 to 100000. Further tasks of clients are refused. It is required if a2a.enabled is true."`
	Timeout  *time.Duration  `yaml:"timeout" check:"timeout" doc:"A run of a client's task is killed after this time, 1s to 168h. The default is the timeout of the role's other tasks."`
	Review   picket.ReviewBy `yaml:"review" check:"review" doc:"Who decides the result of a client's task: human or none. The default is the review of the role's other tasks, and it can only be stricter."`

	ReusedMessageIDs bool `yaml:"reused_message_ids" check:"yes_no" doc:"Whether clients may use one message id for several messages. Then a message that is sent again because the response was lost makes a second task."`
}

// Card is what the agent card of an entry says. An empty field stands for its default. The texts are valid UTF-8
// without control characters.
type Card struct {
	Name             string `yaml:"name" check:"card_name" doc:"The name on the agent card, at most 128 bytes. The default is the role."`
	Description      string `yaml:"description" check:"card_text" doc:"What the agent does, at most 2000 bytes."`
	DocumentationURL string `yaml:"documentation_url" check:"card_url" doc:"The URL of the agent's documentation."`
	IconURL          string `yaml:"icon_url" check:"card_url" doc:"The URL of the agent's icon."`
	Organization     string `yaml:"organization" check:"card_name" doc:"The organization that offers the agent, at most 128 bytes. It needs organization_url."`
	OrganizationURL  string `yaml:"organization_url" check:"card_url" doc:"The URL of the organization. It needs organization."`
}

// Skill is how the agent card describes a capability. An empty field stands for its default.
type Skill struct {
	Name        string   `yaml:"name" check:"card_name" doc:"The name of the skill, at most 128 bytes. The default is the capability."`
	Description string   `yaml:"description" check:"card_text" doc:"What the agent can do with the capability, at most 2000 bytes."`
	Examples    []string `yaml:"examples" check:"example" doc:"At most 10 prompts, of at most 1000 bytes each, that show what the skill is for."`
	InputModes  []string `yaml:"input_modes" check:"media_type" doc:"At most 20 media types, such as text/plain, that the skill takes."`
	OutputModes []string `yaml:"output_modes" check:"media_type" doc:"At most 20 media types that the skill answers with."`
}

const (
	maxCardName  = 128  // bytes
	maxCardText  = 2000 // bytes
	maxCardURL   = 2048 // bytes
	maxExample   = 1000 // bytes
	maxExamples  = 10
	maxModes     = 20
	maxMediaType = 255 // bytes
)

// A2APool is the pool of a role that A2A clients can submit tasks to.
type A2APool struct {
	Agent string // the name of the entry under agents
	Role  string
	// Task is a client's task without its title and input. Its timeout, stall_after, lease window, retry, escalate,
	// review and on_exit are those of a task that `picket task create` makes for the role, unless the entry's a2a says
	// otherwise. Its envelope is the most that the task may get. A copy of the spec shares what its pointers point to.
	Task     picket.TaskSpec
	MaxQueue int // tasks that may wait in the queue of the pool, 1 to 100,000
	// ReusedMessageIDs is set if clients may use one message id for several messages.
	ReusedMessageIDs bool
	// Capabilities are what its workers offer.
	Capabilities []string
	Preset       string   // of the coding agent that its workers start, or "" or exec
	Command      []string // what they start otherwise; empty: an adapter of another kind
	Card         Card
	Skills       map[string]Skill // by capability; a capability that nothing describes has none
}

// A2APools returns the pools of all entries with a2a.enabled, by the names of the entries.
func (s Settings) A2APools() (pools []A2APool) {
	for _, e := range s.AgentEntries() {
		if e.A2A.Enabled {
			pools = append(pools, A2APool{Agent: e.Name, Role: e.Role(), Task: s.a2aTaskOf(e),
				MaxQueue: *e.A2A.MaxQueue, ReusedMessageIDs: e.A2A.ReusedMessageIDs,
				Capabilities: slices.Clone(e.Capabilities), Preset: e.Launch.Preset,
				Command: slices.Clone(e.Launch.Command), Card: e.Card, Skills: maps.Clone(e.Skills)})
		}
	}
	return pools
}

// a2aTaskOf is what a task of a client is like.
func (s Settings) a2aTaskOf(e Agent) picket.TaskSpec {
	spec := s.TaskOf(e)
	spec.BudgetEnvelope = &budget.Envelope{USD: *e.A2A.Budget, Tokens: s.Budget.Default.Tokens}
	spec.Review = cmp.Or(e.A2A.Review, e.Review, picket.ReviewByHuman)
	spec.TimeoutSeconds = seconds(e.A2A.Timeout)
	s.ForRole(e.Role()).LimitTask(&spec)
	return spec
}

// checkA2A refuses an endpoint without limits, and one with less review than the role's other tasks have.
func (e Agent) checkA2A() error {
	const remedy = "Add %s below a2a, or set a2a.enabled to false."
	switch a := e.A2A; {
	case a.Enabled && a.Budget == nil:
		return e.refuse("a2a.budget", "is missing: with a2a.enabled it has to limit what one task of a client may cost",
			fmt.Sprintf(remedy, "budget: 0.50"))
	case a.Enabled && a.MaxQueue == nil:
		return e.refuse("a2a.max_queue", "is missing: with a2a.enabled it has to limit how many tasks may wait",
			fmt.Sprintf(remedy, "max_queue: 100"))
	case a.Review == picket.ReviewByNone && e.Review != picket.ReviewByNone:
		return e.refuse("a2a.review",
			fmt.Sprintf("asks for less review than agents.%s.review, which is human", e.Name),
			"Leave a2a.review out. Write review: none below the entry if no result of the role needs a review.")
	}
	return nil
}

// checkCard refuses half of what a card says about the organization: the protocol requires both.
func (e Agent) checkCard() error {
	switch c := e.Card; {
	case c.Organization != "" && c.OrganizationURL == "":
		return e.refuse("card.organization", "is given without organization_url, and an agent card has both or none",
			"Add organization_url: https://example.com below card.")
	case c.Organization == "" && c.OrganizationURL != "":
		return e.refuse("card.organization_url", "is given without organization, and an agent card has both or none",
			"Add the name of the organization: organization: Example.")
	}
	return nil
}

// checkSkills refuses descriptions of what the workers of the entry do not offer, and lists that are too long.
func (e Agent) checkSkills() error {
	for _, tag := range slices.Sorted(maps.Keys(e.Skills)) {
		at := "skills" + PathSep + tag
		if !slices.Contains(e.Capabilities, tag) {
			remedy := fmt.Sprintf("Add %s to agents.%s.capabilities, or remove the skill.", term.ShellQuote(tag), e.Name)
			if near := term.Nearest(tag, e.Capabilities); near != "" {
				remedy = fmt.Sprintf("Did you mean %s? %s", term.ShellQuote(near), remedy)
			}
			return e.refuse(at, fmt.Sprintf("describes a capability that agents.%s.capabilities does not list", e.Name), remedy)
		}
		skill := e.Skills[tag]
		for _, list := range []struct {
			key   string
			items []string
			most  int
		}{
			{"examples", skill.Examples, maxExamples},
			{"input_modes", skill.InputModes, maxModes},
			{"output_modes", skill.OutputModes, maxModes},
		} {
			if n := len(list.items); n > list.most {
				return e.refuse(at+PathSep+list.key, fmt.Sprintf("has %d items, at most %d are allowed", n, list.most),
					fmt.Sprintf("Keep the %d that say the most.", list.most))
			}
		}
	}
	return nil
}

// checkCardURL takes a URL that everyone may see.
func checkCardURL(address string) error {
	if len(address) > maxCardURL {
		return fmt.Errorf("the URL has %d bytes, at most %d are allowed", len(address), maxCardURL)
	}
	_, err := parseWebURL(address)
	return err
}

func checkSkillTag(tag string) error { return picket.CheckCapability(tag, tag) }

// checkMediaType takes a type and a subtype, with or without parameters.
func checkMediaType(given string) error {
	t, _, err := mime.ParseMediaType(given)
	if err != nil || !strings.Contains(t, "/") || len(given) > maxMediaType {
		return fmt.Errorf("%q is not a media type such as text/plain or application/json", given)
	}
	return nil
}

// plainText is a check for a text of an agent card that has at most so many bytes.
func plainText(most int, lines bool) func(string) error {
	return func(given string) error {
		shown := text.OneLine(given)
		if lines {
			shown = text.Printable(given)
		}
		switch {
		case strings.TrimSpace(given) == "":
			return errors.New("the text is empty: leave the key out for the default")
		case len(given) > most:
			return fmt.Errorf("the text has %d bytes, at most %d are allowed", len(given), most)
		case !utf8.ValidString(given) || shown != given && lines:
			return errors.New("the text has invisible characters or is not UTF-8")
		case shown != given:
			return errors.New("the text has a line break or invisible characters: write it in one line")
		}
		return nil
	}
}
