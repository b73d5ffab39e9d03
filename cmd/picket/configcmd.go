package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
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
			cfg, err := loadSettings(cmd)
			if err != nil {
				return err
			}
			var all []settingRow
			for _, s := range knownSettings() {
				v := cfg[s.key]
				text := v.text
				if s.key == "redis" && text != "" {
					text = redactedRedisURL(text)
				}
				all = append(all, settingRow{s.key, text, v.origin, s.env(), s.what})
			}
			return printSettings(cmd, append(append(all, agentSettingRows(cfg)...), toolSettingRows(cfg)...))
		},
	}
	c.Flags().Bool("origin", false, "name where each value came from")
	return formatFlag(c)
}

// agentSettingRows are the keys that entries under agents have.
func agentSettingRows(cfg settings) (all []settingRow) {
	for _, e := range cfg.agentEntries() {
		for _, k := range agentSettings {
			if v, ok := e.value(k.key); ok {
				all = append(all, settingRow{
					Key:    displayKey(entryKey(e.name, k.key)),
					Value:  v.text,
					Origin: v.origin,
					What:   k.what,
				})
			}
		}
	}
	return all
}

// toolSettingRows are the values under tools.
func toolSettingRows(cfg settings) (all []settingRow) {
	for _, key := range slices.Sorted(maps.Keys(cfg)) {
		if v := cfg[key]; strings.HasPrefix(key, toolsPrefix) && v.items != nil {
			path := strings.Split(key, pathSep)
			all = append(all, settingRow{
				Key:    strings.Join(path, "."),
				Value:  v.text,
				Origin: v.origin,
				What:   toolsShape().at(path[1:]).what,
			})
		}
	}
	return all
}

func printSettings(cmd *cobra.Command, all []settingRow) error {
	format, err := formatOf(cmd)
	if err != nil {
		return err
	}
	origin, _ := cmd.Flags().GetBool("origin")
	columns := []column[settingRow]{
		{head: "KEY", cell: func(s settingRow) string { return s.Key }},
		{head: "VALUE", cell: func(s settingRow) string { return s.Value }},
	}
	if origin {
		columns = append(columns,
			column[settingRow]{head: "ORIGIN", cell: func(s settingRow) string { return s.Origin }})
	}
	columns = append(columns,
		column[settingRow]{head: "ENV", cell: func(s settingRow) string { return s.Env }, wide: true},
		column[settingRow]{head: "WHAT", cell: func(s settingRow) string { return s.What }, wide: true})
	return printItems(cmd, format, all, columns, func(s settingRow) string { return s.Key })
}
