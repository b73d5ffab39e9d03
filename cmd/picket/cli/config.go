package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/text"
)

// NewConfig is `picket config`: the settings in force, and trust in a picket.yaml.
// checkAgentFile refuses the text of a file of an agent name that the server would not use.
func NewConfig(checkAgentFile func(path, text string) error) *cobra.Command {
	return CommandGroup("config", "Show the configuration, and trust the file of a directory", newConfigShow(),
		newConfigTrust(checkAgentFile),
		newConfigUntrust())
}

// shown is one line of `config show`.
type settingRow struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
	Env    string `json:"env"`
	What   string `json:"what"`
	Unset  string `json:"unset,omitempty"`
}

func newConfigShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "Show every setting, and with --origin where it came from",
		Args:  CheckArgs(cobra.NoArgs),
		Long: "Show every setting with its value. A flag goes before the environment, the environment before\n" +
			"picket.yaml, and picket.yaml before the default. --origin names which of them set the value, and\n" +
			"-o wide explains each setting.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := settings.LoadSettings(cmd)
			if err != nil {
				return err
			}
			var all []settingRow
			for _, s := range cfg.All() {
				if s.Name == "redis" && s.Text != "" {
					s.Text = settings.RedactedRedisURL(s.Text)
				}
				all = append(all, settingRow{s.Name, s.Text, s.Origin, s.Env, s.What, s.Unset})
			}
			return printSettings(cmd, all)
		},
	}
	c.Flags().Bool("origin", false, "name where each value came from")
	return term.FormatFlag(c)
}

func printSettings(cmd *cobra.Command, all []settingRow) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	origin, _ := cmd.Flags().GetBool("origin")
	columns := []term.Column[settingRow]{
		{Head: "KEY", Cell: func(s settingRow) string { return s.Key }},
		{Head: "VALUE", Cell: func(s settingRow) string { return cmp.Or(s.Value, s.Unset) }},
	}
	if origin {
		columns = append(columns,
			term.Column[settingRow]{Head: "ORIGIN", Cell: func(s settingRow) string { return s.Origin }})
	}
	columns = append(columns,
		term.Column[settingRow]{Head: "ENV", Cell: func(s settingRow) string { return s.Env }, Wide: true},
		term.Column[settingRow]{Head: "WHAT", Cell: func(s settingRow) string { return s.What }, Wide: true})
	return term.PrintItems(cmd, format, all, columns, func(s settingRow) string { return s.Key })
}

func newConfigTrust(checkAgentFile func(path, text string) error) *cobra.Command {
	c := &cobra.Command{
		Use:   "trust",
		Short: "Trust the picket.yaml of this directory, as it is now",
		Args:  CheckArgs(cobra.NoArgs),
		Long: "Trust the picket.yaml of this directory, as it is now. The command lists every setting of the file and marks\n" +
			"those that are new or have changed since the file was last trusted. Picket stores a digest of the file outside\n" +
			"the directory. After any change the file must be trusted again. The same is true of picket/agents/NAME/AGENT.md\n" +
			"and HEARTBEAT.md beside it. The command shows their text if it is new or has changed, and Picket stores a copy.\n" +
			"A file that --config or PICKET_CONFIG names, and the one in the user's configuration directory, need no trust.\n" +
			"The digest does not cover the scripts and programs that the file names.",
		Example: "  picket config trust --dry-run\n  picket config trust",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runConfigTrust(cmd, checkAgentFile) },
	}
	c.Flags().Bool("dry-run", false, "list the settings of the file, and trust nothing")
	return term.FormatFlag(c)
}

func newConfigUntrust() *cobra.Command {
	return &cobra.Command{
		Use: "untrust", Short: "Stop trusting the picket.yaml of this directory", Args: CheckArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseTrustInRun(); err != nil {
				return err
			}
			path, err := settings.ConfigFile{Path: "picket.yaml", Local: true}.Absolute()
			if err != nil {
				return err
			}
			if err := os.Remove(settings.TrustPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), term.OneLine(path)+" is not trusted")
			return nil
		},
	}
}

func runConfigTrust(cmd *cobra.Command, checkAgentFile func(path, text string) error) error {
	if err := refuseTrustInRun(); err != nil {
		return err
	}
	f, err := settings.FindConfig(cmd)
	switch {
	case err != nil:
		return err
	case f.Path == "" || !f.Local && f.Path != "picket.yaml":
		return exit.Usagef("there is no picket.yaml in this directory")
	case !f.Local:
		return exit.Usagef("%s needs no trust, because --config or PICKET_CONFIG names it, or it is in the user's configuration directory", f.Path)
	case f.Unreadable != nil:
		return f.Unreadable
	}
	values, err := f.Parse()
	if err != nil {
		return err
	}
	texts, err := trustedTexts(f, checkAgentFile)
	if err != nil {
		return err
	}
	for at, text := range texts {
		values[at] = settings.Value{Text: text, Origin: at}
	}
	old, _ := f.TrustRecord() // a record that cannot be read is replaced, and all counts as new
	if err := printTrust(cmd, values, old); err != nil {
		return err
	}
	path, err := f.Absolute()
	if err != nil {
		return err
	}
	if dry, _ := cmd.Flags().GetBool("dry-run"); dry {
		fmt.Fprintln(cmd.ErrOrStderr(),
			"nothing was changed; to use "+term.OneLine(path)+", run: "+settings.TrustCommand)
		return nil
	}
	record, err := json.Marshal(settings.TrustRecord{
		Path:   path,
		SHA256: settings.Digest(f.Text),
		At:     time.Now().UTC().Truncate(time.Second),
		Keys:   settingDigests(values),

		AgentFiles: texts,
	})
	if err != nil {
		return err
	}
	if err := files.WritePrivate(settings.TrustPath(path), append(record, '\n')); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), term.OneLine(path)+" is trusted as it is now")
	return nil
}

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

// refuseTrustInRun keeps an agent that follows instructions of a repository from
// deciding about the trust in its file, in a run or a session. It does not stop a hostile process of the same user.
func refuseTrustInRun() error {
	inside := cmp.Or(os.Getenv("PICKET_RUN_ID"), os.Getenv("PICKET_SESSION_ID"))
	if inside == "" {
		return nil
	}
	return picket.Refuse(picket.CodeForbidden, "Ask the person it works for to run: "+settings.TrustCommand,
		"this command runs inside %s, and only a person trusts a configuration file", term.OneLine(inside))
}

// settingDigests are those of the values by key, without the sections that hold them.
func settingDigests(values map[string]settings.Value) map[string]string {
	all := map[string]string{}
	for key, v := range values {
		if v.Section {
			continue
		}
		all[key] = settings.Digest([]byte(strings.Join(append([]string{v.Text}, v.Items...), "\x00")))
	}
	return all
}

// trustRow is one setting of a file that is about to be trusted.
type trustRow struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Line   string `json:"line"`
	Change string `json:"change"` // new, changed, removed, or empty
}

// printTrust lists what a file sets and what of it differs from the file that
// was trusted last.
func printTrust(cmd *cobra.Command, values map[string]settings.Value, old settings.TrustRecord) error {
	now, was := settingDigests(values), old.Keys
	keys := slices.AppendSeq(slices.Collect(maps.Keys(now)), maps.Keys(was))
	slices.Sort(keys)
	var rows []trustRow
	for _, key := range slices.Compact(keys) {
		v := values[key]
		row := trustRow{Key: trustedKey(key), Value: trustedValue(key, v), Line: v.Origin}
		switch {
		case now[key] == "":
			row.Change = "removed"
		case was[key] == "":
			row.Change = "new"
		case was[key] != now[key]:
			row.Change = "changed"
		}
		rows = append(rows, row)
	}
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	columns := []term.Column[trustRow]{
		{Head: "KEY", Cell: func(s trustRow) string { return s.Key }},
		{Head: "VALUE", Cell: func(s trustRow) string { return s.Value }},
		{Head: "CHANGE", Cell: func(s trustRow) string { return s.Change }},
		{Head: "LINE", Cell: func(s trustRow) string { return s.Line }, Wide: true},
	}
	if format == "table" || format == "wide" {
		printTrustTable(cmd.OutOrStdout(), printTrustedTexts(cmd.OutOrStdout(), rows), format == "wide")
		return nil
	}
	return term.PrintItems(cmd, format, rows, columns, func(s trustRow) string { return s.Key })
}

// ReportLocalSettings names the keys that a local file sets, for a command that starts
// something.
func ReportLocalSettings(cmd *cobra.Command, cfg settings.Settings) {
	if keys := cfg.LocalKeys(); len(keys) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(),
			"picket.yaml in this directory sets "+term.OneLine(strings.Join(keys, ", ")))
	}
}

// How a file is shown to a person who may trust it. Its author may be hostile, so no part of the
// file may hide another part. Every name and value that is not a plain word is quoted, and
// invisible characters are written in octets.

// trustedKey is the key of a setting; names in it are the author's choice.
func trustedKey(key string) string {
	if !strings.Contains(key, settings.PathSep) {
		return settings.DisplayKey(key)
	}
	parts := strings.Split(key, settings.PathSep)
	parts[0] = settings.DisplayKey(parts[0])
	for i, part := range parts {
		parts[i] = visibleWord(part)
	}
	return strings.Join(parts, ".")
}

// trustedValue is a value: a command as a shell reads it, the words of any other
// list apart.
func trustedValue(key string, v settings.Value) string {
	switch {
	case key == "redis" && v.Text != "":
		return visibleWord(settings.RedactedRedisURL(v.Text))
	case strings.HasPrefix(key, picket.AgentFilesDir+"/") && v.Origin != "":
		return visibleText(v.Text)
	case v.Items == nil && v.Text == "":
		return ""
	case v.Items == nil:
		return visibleWord(v.Text)
	}
	words := make([]string, len(v.Items))
	for i, item := range v.Items {
		words[i] = visibleWord(item)
	}
	if strings.HasSuffix(key, settings.PathSep+"command") || strings.HasSuffix(key, "launch.command") {
		return strings.Join(words, " ")
	}
	return strings.Join(words, ", ")
}

// visibleWord writes a word so that nothing of it is unseen.
func visibleWord(word string) string {
	spaces := strings.Contains(word, "  ") // many of them could look like the end of a column or line
	hidden := func(r rune) bool { return isInvisible(r) || spaces && r == ' ' }
	if strings.ContainsFunc(word, hidden) {
		return term.ShellQuoteHiding(word, hidden)
	}
	return term.ShellQuote(word)
}

// isInvisible reports whether a character steers a terminal or shows nothing.
func isInvisible(r rune) bool {
	switch r {
	case '\u115f', '\u1160', '\u2800', '\u3164', '\uffa0': // letters and a sign that are blank
		return true
	}
	return !strconv.IsPrint(r) || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// What a table shows of one value, and the widths that its columns are padded to.
// Neither a long value nor the blanks beside it may push other lines out of sight.
const (
	maxTrustedValue = 400
	maxTrustedPad   = 60
)

// printTrustTable shows what a file sets. Unlike other tables it is never cut to
// the width of the terminal.
func printTrustTable(w io.Writer, all []trustRow, wide bool) {
	p := term.Painter(w)
	rows := [][]string{{"KEY", "VALUE", "CHANGE"}}
	if wide {
		rows[0] = append(rows[0], "LINE")
	}
	for _, s := range all {
		row := []string{s.Key, shortValue(s), s.Change}
		if wide {
			row = append(row, s.Line)
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], min(ansi.StringWidth(cell), maxTrustedPad))
		}
	}
	for n, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			if cell = term.OneLine(cell); n == 0 {
				cell = p.Dim(cell)
			}
			b.WriteString(cell + strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(cell))+2))
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// shortValue is a value, or its beginning and where the rest can be read.
func shortValue(s trustRow) string {
	more := utf8.RuneCountInString(s.Value) - maxTrustedValue
	if more <= 0 {
		return s.Value
	}
	return fmt.Sprintf("%s… (%d more characters at %s; -o json shows them)", string([]rune(s.Value)[:maxTrustedValue]),
		more, s.Line)
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
