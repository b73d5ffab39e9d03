package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

func newConfig() *cobra.Command {
	return commandGroup("config", "Show the configuration, and trust the file of a directory", newConfigShow(),
		newConfigTrust(), newConfigUntrust())
}

// shown is one line of `config show`.
type settingRow struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
	Env    string `json:"env"`
	What   string `json:"what"`
}

func newConfigShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "Show every setting, and with --origin where it came from",
		Args:  checkArgs(cobra.NoArgs),
		Long: "Show every setting with its value. The order is flag, environment, picket.yaml, default; --origin names\n" +
			"which of them won, and -o wide explains each setting.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := settings.LoadSettings(cmd)
			if err != nil {
				return err
			}
			var all []settingRow
			for _, s := range settings.KnownSettings() {
				v := cfg[s.Key]
				text := v.Text
				if s.Key == "redis" && text != "" {
					text = settings.RedactedRedisURL(text)
				}
				all = append(all, settingRow{s.Key, text, v.Origin, s.Env(), s.What})
			}
			return printSettings(cmd, append(append(all, agentSettingRows(cfg)...), toolSettingRows(cfg)...))
		},
	}
	c.Flags().Bool("origin", false, "name where each value came from")
	return term.FormatFlag(c)
}

// agentSettingRows are the keys that entries under agents have.
func agentSettingRows(cfg settings.Settings) (all []settingRow) {
	for _, e := range cfg.AgentEntries() {
		for _, k := range settings.AgentSettings {
			if v, ok := e.Value(k.Key); ok {
				all = append(all, settingRow{
					Key:    settings.DisplayKey(settings.EntryKey(e.Name, k.Key)),
					Value:  v.Text,
					Origin: v.Origin,
					What:   k.What,
				})
			}
		}
	}
	return all
}

// toolSettingRows are the values under tools.
func toolSettingRows(cfg settings.Settings) (all []settingRow) {
	for _, key := range slices.Sorted(maps.Keys(cfg)) {
		if v := cfg[key]; strings.HasPrefix(key, settings.ToolsPrefix) && v.Items != nil {
			path := strings.Split(key, settings.PathSep)
			all = append(all, settingRow{
				Key:    strings.Join(path, "."),
				Value:  v.Text,
				Origin: v.Origin,
				What:   settings.ToolsShape().At(path[1:]).What,
			})
		}
	}
	return all
}

func printSettings(cmd *cobra.Command, all []settingRow) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	origin, _ := cmd.Flags().GetBool("origin")
	columns := []term.Column[settingRow]{
		{Head: "KEY", Cell: func(s settingRow) string { return s.Key }},
		{Head: "VALUE", Cell: func(s settingRow) string { return s.Value }},
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
