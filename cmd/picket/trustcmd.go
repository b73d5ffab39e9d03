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
	return formatFlag(c)
}

func newConfigUntrust() *cobra.Command {
	return &cobra.Command{
		Use: "untrust", Short: "Stop trusting the picket.yaml of this directory", Args: checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := configFile{path: "picket.yaml", local: true}.absolute()
			if err != nil {
				return err
			}
			if err := os.Remove(trustPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), oneLine(path)+" is not trusted")
			return nil
		},
	}
}

func runConfigTrust(cmd *cobra.Command, _ []string) error {
	if err := refuseTrustInRun(); err != nil {
		return err
	}
	f, err := findConfig(cmd)
	switch {
	case err != nil:
		return err
	case f.path == "" || !f.local && f.path != "picket.yaml":
		return usageError("there is no picket.yaml in this directory")
	case !f.local:
		return usageError("%s needs no trust, because --config or PICKET_CONFIG names it, or it is in the user's configuration directory", f.path)
	case f.unreadable != nil:
		return f.unreadable
	}
	values, err := f.parse()
	if err != nil {
		return err
	}
	old, err := f.trustRecord()
	if err != nil {
		return err
	}
	if err := printTrust(cmd, values, old); err != nil {
		return err
	}
	path, err := f.absolute()
	if err != nil {
		return err
	}
	if dry, _ := cmd.Flags().GetBool("dry-run"); dry {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing was changed; to use "+oneLine(path)+", run: "+trustCommand)
		return nil
	}
	record, err := json.Marshal(trustRecord{
		Path:   path,
		SHA256: sha256Hex(f.text),
		At:     time.Now().UTC().Truncate(time.Second),
		Keys:   settingDigests(values),
	})
	if err != nil {
		return err
	}
	if err := writeFileAtomic(trustPath(path), append(record, '\n')); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), oneLine(path)+" is trusted as it is now")
	return nil
}

// refuseTrustInRun keeps an agent that follows instructions of a repository from
// trusting its file. It does not stop a hostile process of the same user.
func refuseTrustInRun() error {
	run := os.Getenv("PICKET_RUN_ID")
	if run == "" {
		return nil
	}
	return picket.Refuse(picket.CodeForbidden, "Ask the person it works for to run: "+trustCommand,
		"this command runs inside %s, and only a person trusts a configuration file", oneLine(run))
}

// settingDigests are those of the values by key, without the sections that hold them.
func settingDigests(values map[string]value) map[string]string {
	all := map[string]string{}
	for key, v := range values {
		section := strings.HasSuffix(key, ":") || key == "tools" ||
			strings.HasPrefix(key, toolsPrefix) && v.items == nil
		if section {
			continue
		}
		all[key] = sha256Hex([]byte(strings.Join(append([]string{v.text}, v.items...), "\x00")))
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
func printTrust(cmd *cobra.Command, values map[string]value, old trustRecord) error {
	now, was := settingDigests(values), old.Keys
	keys := slices.AppendSeq(slices.Collect(maps.Keys(now)), maps.Keys(was))
	slices.Sort(keys)
	var rows []trustRow
	for _, key := range slices.Compact(keys) {
		v := values[key]
		row := trustRow{Key: trustedKey(key), Value: trustedValue(key, v), Line: v.origin}
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
	format, err := formatOf(cmd)
	if err != nil {
		return err
	}
	columns := []column[trustRow]{
		{head: "KEY", cell: func(s trustRow) string { return s.Key }},
		{head: "VALUE", cell: func(s trustRow) string { return s.Value }},
		{head: "CHANGE", cell: func(s trustRow) string { return s.Change }},
		{head: "LINE", cell: func(s trustRow) string { return s.Line }, wide: true},
	}
	if format == "table" || format == "wide" {
		printTrustTable(cmd.OutOrStdout(), rows, format == "wide")
		return nil
	}
	return printItems(cmd, format, rows, columns, func(s trustRow) string { return s.Key })
}

// reportLocalSettings says what a local file sets for a command that starts
// something.
func reportLocalSettings(cmd *cobra.Command, cfg settings) {
	var keys []string
	for key, v := range cfg {
		if v.local && key != "tools" {
			agent, _, _ := strings.Cut(key, ":")
			tool := strings.Split(agent, pathSep)
			keys = append(keys, strings.Join(tool[:min(2, len(tool))], "."))
		}
	}
	if len(keys) == 0 {
		return
	}
	slices.Sort(keys)
	fmt.Fprintln(cmd.ErrOrStderr(),
		"picket.yaml in this directory sets "+oneLine(strings.Join(slices.Compact(keys), ", ")))
}
