package agents

import (
	"cmp"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// Prompt is a prompt to a coding agent outside of any run. The agent has no lease. It has a few of
// Picket's tools if there is a ProxyURL.
type Prompt struct {
	// Text is what the agent is told. Required, except for a resident agent.
	Text string
	// ProxyURL is the tool proxy that admits the session capability in the variable
	// PICKET_SESSION_CAPABILITY, which the caller sets. Empty: the agent has none of Picket's tools.
	ProxyURL string
	// Capability is that session capability. Without it the agent is not pointed at the models of the tool proxy.
	Capability picket.Secret
	// HTTP asks the tool proxy. Defaults to http.DefaultClient.
	HTTP *http.Client
	// Dir is the agent's current directory.
	Dir string
	// StateDir holds the id of the conversation and the agent's configuration. The next prompt with
	// the same StateDir and Dir goes on with the conversation. Required.
	StateDir string
	// InheritedEnv are the variables that the agent gets from the adapter's own environment,
	// NAME=value.
	InheritedEnv []string
	// Stderr takes notes for people, beside what the agent prints. May be nil.
	Stderr io.Writer
	// Used takes what the output says the agent has used. May be nil.
	Used func(picket.UsageReport)
	// Answer takes the agent's words as they come. What it is called with one after the other is the
	// answer. May be nil.
	Answer func(words string)
	// Resident has the agent stay and read its prompts as lines. Then Text does not count. Nil: it answers Text and
	// exits.
	Resident *Resident
}

// NewPromptSetup starts to prepare a prompt to a coding agent outside of any run. The preset must be one: see
// [Preset.CodingAgent]. There is nothing to wait for before Arguments.
func NewPromptSetup(p Preset, prompt Prompt) *Setup {
	return &Setup{
		preset: p,
		run: Run{
			Dir:          prompt.Dir,
			StateDir:     prompt.StateDir,
			InheritedEnv: prompt.InheritedEnv,
			Stderr:       prompt.Stderr,
			Used:         prompt.Used,
			HTTP:         cmp.Or(prompt.HTTP, http.DefaultClient),
		},
		proxyURL: prompt.ProxyURL,
		mcpURL:   strings.TrimSuffix(prompt.ProxyURL, "/") + "/mcp",
		session:  openConversation(Conversation{prompt.StateDir, prompt.Dir}, p, prompt.Dir),
		outside:  &prompt,
	}
}

// sessionVariable holds the session capability in the agent's environment.
const sessionVariable = "PICKET_SESSION_CAPABILITY"

// hasTools reports whether the agent reaches Picket's tools.
func (e *Setup) hasTools() bool { return e.outside == nil || e.outside.ProxyURL != "" }

// credentialVariable names the variable that holds the bearer for the tools.
func (e *Setup) credentialVariable() string {
	if e.outside != nil {
		return sessionVariable
	}
	return leaseVariable
}

// Resumes reports whether the agent is told to go on with a conversation that it has stored.
func (e *Setup) Resumes() bool { return e.session.resume != "" }

// argument is the prompt as an argument of the agent's program. It cannot be taken for an option, and has no
// NUL, which no argument can contain.
func (p *Prompt) argument() string {
	words := strings.ReplaceAll(p.Text, "\x00", "")
	if strings.HasPrefix(words, "-") {
		return "\n" + words
	}
	return words
}

// answerReader picks the agent's words out of its lines.
type answerReader struct {
	to    func(words string)
	begun bool
	apart bool // something else came after the last words
}

// read takes a line of the output.
func (r *answerReader) read(line []byte) {
	if r == nil || r.to == nil {
		return
	}
	words, goesOn := wordsOf(line)
	if words == "" {
		r.apart = true
		return
	}
	if r.begun && (r.apart || !goesOn) {
		words = "\n\n" + words
	}
	r.begun, r.apart = true, false
	r.to(words)
}

// wordsOf is what an agent says in a line. goesOn reports that it is a piece that may follow another
// one in the middle of a word.
func wordsOf(line []byte) (words string, goesOn bool) {
	var in struct {
		printedLine
		Delta bool `json:"delta"`
	}
	if json.Unmarshal(line, &in) != nil {
		return "", false
	}
	switch in.Type {
	case "assistant": // Claude Code
		var all []string
		for _, c := range in.printedLine.Message.Content {
			if c.Type == "text" && c.Text != "" {
				all = append(all, c.Text)
			}
		}
		return strings.Join(all, "\n\n"), false
	case "item.completed": // Codex
		if in.Item.Type == "agent_message" {
			return in.Item.Text, false
		}
	case "message": // Gemini CLI
		if in.Role == "assistant" {
			return in.Content, in.Delta
		}
	case "text": // OpenCode
		return in.Part.Text, false
	}
	return "", false
}

// Conversation is the id of the agent's own conversation that its output has named; empty: none.
func (w *OutputReader) Conversation() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.named
}

// BeginAnswer has the next words be the beginning of an answer, of a resident agent.
func (w *OutputReader) BeginAnswer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = &answerReader{to: w.answer.to}
}

// LostTools reports whether a resident agent does not reach Picket's tools any more, as its output says.
func (w *OutputReader) LostTools() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lostTools
}

// Stopped is why the agent has given up, as its output says; empty: it has not.
func (w *OutputReader) Stopped() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped
}
