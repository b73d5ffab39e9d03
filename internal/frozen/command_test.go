package frozen

import (
	stdjson "encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	aCommand = regexp.MustCompile(`^    ([a-z][a-z0-9-]*)( \[?[^ ].*?)?  +\S`)
	aFlag    = regexp.MustCompile(`^    (?:(-[A-Za-z]) )?(--[a-z][a-z0-9-]*)`)
	aDefault = regexp.MustCompile(`\(([^ ()]+)\)$`)
	aSection = regexp.MustCompile(`^  ([A-Z][A-Z ]*?) *$`)
)

// TestCommands walks the help of every command. It keeps names, shorthands and
// defaults; the sentences are free.
func TestCommands(t *testing.T) {
	walk := &helpWalk{t: t, turn: make(chan struct{}, 6)}
	walk.work.Add(1)
	walk.command(nil)
	walk.work.Wait()
	compare(t, "commands", walk.lines)
}

type helpWalk struct {
	t     *testing.T
	work  sync.WaitGroup
	turn  chan struct{}
	mu    sync.Mutex
	lines []string
}

func (w *helpWalk) command(path []string) {
	defer w.work.Done()
	w.turn <- struct{}{}
	help := picket(w.t, append(slices.Clone(path), "--help")...)
	<-w.turn
	commands, lines := readHelp(help)
	name := strings.Join(append([]string{"picket"}, path...), " ")
	w.mu.Lock()
	w.lines = append(w.lines, name)
	for _, line := range lines {
		w.lines = append(w.lines, name+" "+line)
	}
	w.mu.Unlock()
	for _, command := range commands {
		if command == "help" && len(path) == 0 {
			continue
		}
		w.work.Add(1)
		go w.command(append(slices.Clone(path), command))
	}
}

// readHelp returns the sub commands and the flags that one help text lists.
func readHelp(help string) (commands, flags []string) {
	section, last := "", ""
	end := func() {
		if last != "" {
			flags = append(flags, flagLine(last))
		}
		last = ""
	}
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, " \n")
		if m := aSection.FindStringSubmatch(line); m != nil {
			end()
			section = m[1]
			continue
		}
		switch {
		case section == "" || section == "USAGE" || section == "EXAMPLES" || line == "":
		case section == "FLAGS" && aFlag.MatchString(line):
			end()
			last = line
		case section == "FLAGS" && last != "":
			last += " " + strings.TrimSpace(line)
		default:
			if m := aCommand.FindStringSubmatch(line); m != nil {
				commands = append(commands, m[1])
			}
		}
	}
	end()
	return commands, flags
}

func flagLine(text string) string {
	m := aFlag.FindStringSubmatch(text)
	line := m[2]
	if m[1] != "" {
		line += " " + m[1]
	}
	if value := aDefault.FindStringSubmatch(text); value != nil {
		line += " = " + value[1]
	}
	return line
}

// TestSettings keeps the key, the variable and the default of every setting.
func TestSettings(t *testing.T) {
	var settings []struct {
		Key   string
		Value string
		Env   string
	}
	if err := stdjson.Unmarshal([]byte(picket(t, "config", "show", "-o", "json")), &settings); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, s := range settings {
		value := strings.ReplaceAll(s.Value, buildDir, "$HOME")
		lines = append(lines, fmt.Sprintf("%s %s = %q", s.Key, s.Env, value))
	}
	compare(t, "settings", lines)
}
