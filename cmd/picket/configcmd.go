package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func newConfig() *cobra.Command {
	return noun("config", "Show the configuration, and trust the file of a directory", newConfigShow(),
		newConfigTrust(), newConfigUntrust())
}

// shown is one line of `config show`.
type shownSetting struct {
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
		Args:  args(cobra.NoArgs),
		Long: "Show every setting with its value. The order is flag, environment, picket.yaml, default; --origin names\n" +
			"which of them won, and -o wide explains each setting.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadSettings(cmd)
			if err != nil {
				return err
			}
			var all []shownSetting
			for _, s := range knownSettings() {
				v := cfg[s.key]
				text := v.text
				if s.key == "redis" && text != "" {
					text = redisName(text)
				}
				all = append(all, shownSetting{s.key, text, v.origin, s.env(), s.what})
			}
			return printSettings(cmd, append(append(all, shownAgents(cfg)...), shownTools(cfg)...))
		},
	}
	c.Flags().Bool("origin", false, "name where each value came from")
	return formatFlag(c)
}

// shownAgents are the keys that entries under agents have.
func shownAgents(cfg settings) (all []shownSetting) {
	for _, e := range cfg.agentEntries() {
		for _, k := range agentKeys {
			if v, ok := e.value(k.key); ok {
				all = append(all, shownSetting{
					Key:    spokenKey(entryKey(e.name, k.key)),
					Value:  v.text,
					Origin: v.origin,
					What:   k.what,
				})
			}
		}
	}
	return all
}

// shownTools are the values under tools.
func shownTools(cfg settings) (all []shownSetting) {
	for _, key := range slices.Sorted(maps.Keys(cfg)) {
		if v := cfg[key]; strings.HasPrefix(key, toolsPrefix) && v.items != nil {
			path := strings.Split(key, pathSep)
			all = append(all, shownSetting{
				Key:    strings.Join(path, "."),
				Value:  v.text,
				Origin: v.origin,
				What:   toolsShape().at(path[1:]).what,
			})
		}
	}
	return all
}

func printSettings(cmd *cobra.Command, all []shownSetting) error {
	format, err := formatOf(cmd)
	if err != nil {
		return err
	}
	origin, _ := cmd.Flags().GetBool("origin")
	columns := []column[shownSetting]{
		{head: "KEY", cell: func(s shownSetting) string { return s.Key }},
		{head: "VALUE", cell: func(s shownSetting) string { return s.Value }},
	}
	if origin {
		columns = append(columns,
			column[shownSetting]{head: "ORIGIN", cell: func(s shownSetting) string { return s.Origin }})
	}
	columns = append(columns,
		column[shownSetting]{head: "ENV", cell: func(s shownSetting) string { return s.Env }, wide: true},
		column[shownSetting]{head: "WHAT", cell: func(s shownSetting) string { return s.What }, wide: true})
	return printItems(cmd, format, all, columns, func(s shownSetting) string { return s.Key })
}
