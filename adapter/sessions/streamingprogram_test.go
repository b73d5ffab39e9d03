package sessions

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

func init() { proctest.Scripts["streaming"] = streamingProgram }

// streamingConfig keeps resident sessions of the program below.
func streamingConfig(t *testing.T, s Server, stateDir string) Config {
	t.Helper()
	program := filepath.Join(t.TempDir(), "claude")
	script := "#!/bin/sh\nexec " + strings.Join(proctest.Agent("streaming"), " ") + " \"$@\"\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return Config{Server: s, Incarnation: 7, StateDir: stateDir, Preset: agents.PresetClaude,
		Kind: picket.SessionResident, Command: []string{program}}
}

// streamingAgent is Claude Code as it reads and writes lines.
type streamingAgent struct {
	in *bufio.Scanner
	id string // of the conversation
}

// read waits for a line. It returns the id and the words of it; ok is false at the end.
func (a *streamingAgent) read() (id, words string, ok bool) {
	if !a.in.Scan() {
		return "", "", false
	}
	var line struct {
		Type    string `json:"type"`
		UUID    string `json:"uuid"`
		Message struct {
			Role    string `json:"role"`
			Content []struct {
				Type string `json:"type"`
				Text string `json:"text"`
			} `json:"content"`
		} `json:"message"`
	}
	if err := json.Unmarshal(a.in.Bytes(), &line); err != nil || line.Type != "user" || line.Message.Role != "user" ||
		len(line.Message.Content) != 1 || len(line.UUID) != 36 {
		panic(fmt.Sprintf("%s: %v", a.in.Bytes(), err))
	}
	note("lines", line.UUID)
	return line.UUID, line.Message.Content[0].Text, true
}

// print prints a line.
func (a *streamingAgent) print(fields map[string]any) {
	fields["session_id"] = a.id
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(line, '\n'))
}

func (a *streamingAgent) take(id string) {
	a.print(map[string]any{"type": "user", "uuid": id, "isReplay": true, "message": map[string]any{"role": "user"}})
}

func (a *streamingAgent) say(words string) {
	a.print(map[string]any{"type": "assistant",
		"message": map[string]any{"content": []any{map[string]any{"type": "text", "text": words}}}})
}

func (a *streamingAgent) end(why string) {
	a.print(map[string]any{"type": "result", "is_error": why != "", "result": why, "num_turns": 1,
		"total_cost_usd": 0.01})
}

// turn says words in a turn of its own.
func (a *streamingAgent) turn(id, words string) {
	a.take(id)
	a.say(words)
	a.end("")
}

// streamingProgram does what its prompts say.
func streamingProgram() int {
	a := &streamingAgent{in: bufio.NewScanner(os.Stdin), id: "conversation-1"}
	a.in.Buffer(nil, 1<<20)
	resumed := "no"
	if i := slices.Index(os.Args, "--resume"); i > 0 {
		a.id, resumed = os.Args[i+1], "yes"
	}
	if a.id == "conversation-lost" {
		fmt.Fprintln(os.Stderr, "No conversation found")
		a.print(map[string]any{"type": "result", "is_error": true, "num_turns": 0, "total_cost_usd": 0})
		return 1
	}
	for {
		id, words, ok := a.read()
		if !ok {
			return 0
		}
		status := "connected"
		if words == "toolless" {
			status = "failed"
		}
		a.print(map[string]any{"type": "system", "subtype": "init",
			"mcp_servers": []any{map[string]any{"name": "picket", "status": status}}})
		switch words {
		case "pid":
			a.turn(id, fmt.Sprint(os.Getpid()))
		case "resumed":
			a.turn(id, resumed)
		case "arguments":
			a.turn(id, strings.Join(os.Args, " "))
		case "session":
			a.turn(id, os.Getenv("PICKET_SESSION_ID"))
		case "access":
			held, _ := picket.ParseSessionCapability(os.Getenv("PICKET_SESSION_CAPABILITY"))
			a.turn(id, held.Secret+" "+held.SessionID+" "+os.Getenv("PICKET_CONTEXT_URL"))
		case "tell":
			fmt.Println("a line of log", os.Getenv("PICKET_SESSION_CAPABILITY"))
			fmt.Fprintln(os.Stderr, "it fails with", os.Getenv("PICKET_SESSION_CAPABILITY"))
			a.turn(id, "it is "+os.Getenv("PICKET_SESSION_CAPABILITY")+".")
		case "work": // hears the next line in the middle
			a.take(id)
			a.say("I work.")
			other, heard, _ := a.read()
			a.take(other)
			a.say("I heard " + heard)
			a.end("")
		case "ponder": // hears the next line when the turn is over
			a.take(id)
			other, heard, _ := a.read()
			a.say("I ponder.")
			a.end("")
			a.turn(other, "I heard "+heard)
		case "die": // with a line that it has read
			a.take(id)
			a.read()
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "broke":
			a.take(id)
			a.end("no credit")
		case "unasked": // begins a turn of its own between prompts, and ends it in the next prompt
			a.turn(id, "first")
			a.say("not asked")
			next, _, _ := a.read()
			a.end("")
			a.turn(next, "asked")
		case "lose":
			a.id = "conversation-lost"
			a.turn(id, "lost")
		default:
			a.turn(id, "You said "+words)
		}
	}
}
