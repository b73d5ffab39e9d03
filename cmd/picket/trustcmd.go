package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

func newConfigTrust() *cobra.Command {
	c := &cobra.Command{
		Use:   "trust",
		Short: "Trust the picket.yaml of this directory, as it is now",
		Args:  checkArgs(cobra.NoArgs),
		Long: "Trust the picket.yaml of this directory, as it is now. The command lists every setting of the file and marks\n" +
			"those that are new or have changed since the file was last trusted. Picket stores a digest of the file outside\n" +
			"the directory. After any change the file must be trusted again. A file that --config or PICKET_CONFIG names,\n" +
			"and the one in the user's configuration directory, need no trust. The digest does not cover the scripts and\n" +
			"programs that the file names.",
		Example: "  picket config trust --dry-run\n  picket config trust",
		RunE:    runConfigTrust,
	}
	c.Flags().Bool("dry-run", false, "list the settings of the file, and trust nothing")
	return term.FormatFlag(c)
}

func newConfigUntrust() *cobra.Command {
	return &cobra.Command{
		Use: "untrust", Short: "Stop trusting the picket.yaml of this directory", Args: checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
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

func runConfigTrust(cmd *cobra.Command, _ []string) error {
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
	old, err := f.TrustRecord()
	if err != nil {
		return err
	}
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
	})
	if err != nil {
		return err
	}
	if err := writeFileAtomic(settings.TrustPath(path), append(record, '\n')); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), term.OneLine(path)+" is trusted as it is now")
	return nil
}

// refuseTrustInRun keeps an agent that follows instructions of a repository from
// trusting its file. It does not stop a hostile process of the same user.
func refuseTrustInRun() error {
	run := os.Getenv("PICKET_RUN_ID")
	if run == "" {
		return nil
	}
	return picket.Refuse(picket.CodeForbidden, "Ask the person it works for to run: "+settings.TrustCommand,
		"this command runs inside %s, and only a person trusts a configuration file", term.OneLine(run))
}

// settingDigests are those of the values by key, without the sections that hold them.
func settingDigests(values map[string]settings.Value) map[string]string {
	all := map[string]string{}
	for key, v := range values {
		section := strings.HasSuffix(key, ":") || key == "tools" ||
			strings.HasPrefix(key, settings.ToolsPrefix) && v.Items == nil
		if section {
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
		printTrustTable(cmd.OutOrStdout(), rows, format == "wide")
		return nil
	}
	return term.PrintItems(cmd, format, rows, columns, func(s trustRow) string { return s.Key })
}

// reportLocalSettings says what a local file sets for a command that starts
// something.
func reportLocalSettings(cmd *cobra.Command, cfg settings.Settings) {
	var keys []string
	for key, v := range cfg {
		if v.Local && key != "tools" {
			agent, _, _ := strings.Cut(key, ":")
			tool := strings.Split(agent, settings.PathSep)
			keys = append(keys, strings.Join(tool[:min(2, len(tool))], "."))
		}
	}
	if len(keys) == 0 {
		return
	}
	slices.Sort(keys)
	fmt.Fprintln(cmd.ErrOrStderr(),
		"picket.yaml in this directory sets "+term.OneLine(strings.Join(slices.Compact(keys), ", ")))
}
