package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/text"
)

// trustedTexts reads the files of agent names beside a file, which are trusted with it.
func trustedTexts(f settings.ConfigFile, check func(path, text string) error) (map[string]string, error) {
	texts, err := f.AgentFiles()
	for _, at := range slices.Sorted(maps.Keys(texts)) {
		if err == nil {
			err = check(at, texts[at])
		}
	}
	if err != nil {
		return nil, exit.Usagef("a file beside picket.yaml cannot be trusted: %v", err)
	}
	return texts, nil
}

// isAgentFile reports whether a row is a file of an agent name.
func (r trustRow) isAgentFile() bool { return strings.HasPrefix(r.Key, picket.AgentFilesDir+"/") }

// What is shown of one file of an agent name in a table.
const (
	maxTrustedLines = 60
	maxTrustedText  = 4000 // bytes
)

// printTrustedTexts shows the files of agent names that are new or have changed, and returns the rows of the table,
// which is printed behind them. What is shown is what is trusted: the files may have changed since a person read them.
func printTrustedTexts(w io.Writer, all []trustRow) []trustRow {
	all = slices.Clone(all)
	for i, r := range all {
		if !r.isAgentFile() || r.Change == "removed" {
			continue
		}
		if all[i].Value = "as it was trusted"; r.Change == "" {
			continue
		}
		all[i].Value = "shown above"
		fmt.Fprintf(w, "%s, %s:\n", r.Key, r.Change)
		printTrustedText(w, r.Value)
	}
	return all
}

// printTrustedText shows the beginning of a text. Each line of the text is one of the output, which has a mark.
func printTrustedText(w io.Writer, all string) {
	lines := strings.Split(text.Head(all, maxTrustedText), "\n")
	lines = lines[:min(len(lines), maxTrustedLines)]
	for _, line := range lines {
		fmt.Fprintln(w, strings.TrimRight("  | "+line, " "))
	}
	if more := len(all) - len(strings.Join(lines, "\n")); more > 0 {
		fmt.Fprintf(w, "  … (%d more bytes; -o json shows them)\n", more)
	}
	fmt.Fprintln(w)
}

// visibleText writes each line of a text so that nothing of it is unseen.
func visibleText(all string) string {
	lines := strings.Split(strings.TrimRight(all, "\n"), "\n")
	for i, line := range lines {
		line = strings.ReplaceAll(strings.TrimSuffix(line, "\r"), "\t", "    ")
		blanks := strings.Contains(line, strings.Repeat(" ", maxBlanks))
		hidden := func(r rune) bool { return isInvisible(r) || blanks && r == ' ' }
		if strings.ContainsFunc(line, hidden) {
			line = term.ShellQuoteHiding(line, hidden)
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

// maxBlanks is how many blanks in a row could look like the end of a line.
const maxBlanks = 20
