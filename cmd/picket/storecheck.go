package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

func unsafeFlag(c *cobra.Command) {
	c.Flags().Bool("allow-unsafe-redis", false, "start on a Redis that can lose what was acknowledged; for experiments")
}

// requireSafeStore refuses a start on a store that can lose what was acknowledged.
// The managed store is ours alone, so there a user that may do everything is
// as it should be.
func requireSafeStore(found []finding, cfg settings.Settings, log *slog.Logger) error {
	var details, remedies []string
	for _, f := range found {
		switch {
		case f.grade == "fail" && cfg.Enabled("allow_unsafe_redis"):
			log.Warn("UNSAFE, and allowed: "+f.detail, "store", f.subject, "remedy", f.remedy)
		case f.grade == "fail":
			details, remedies = append(details, f.subject+": "+f.detail), append(remedies, f.remedy)
		case cfg.Text("redis") != "":
			log.Warn(f.detail, "store", f.subject, "remedy", f.remedy)
		}
	}
	if details == nil {
		return nil
	}
	remedy := strings.Join(remedies, " ") + " For an experiment that may lose its state: --allow-unsafe-redis."
	return picket.Refuse(exit.CodeUsage, remedy, "the store is not safe: %s", strings.Join(details, "; "))
}

// redisFindings asks the configured Redis. That of a server elsewhere is asked
// by the server, when it starts.
func redisFindings(ctx context.Context, cfg settings.Settings) []finding {
	url := cfg.Text("redis")
	if url == "" {
		return nil
	}
	o, err := settings.ParseRedisURL(url)
	if err != nil {
		return []finding{{"redis", "fail", exit.Text(err), exit.Remedy(err)}}
	}
	found, err := storeFindings(ctx, o)
	if err != nil {
		return []finding{{"redis", "fail", "it cannot be asked: " + term.OneLine(err.Error()), ""}}
	}
	if len(found) == 0 {
		found = []finding{{"redis", "ok", "keeps what it acknowledges", ""}}
	}
	if err := checkFormat(ctx, o, cfg.Namespaces()); err != nil {
		found = append(found, finding{"store format", "fail", exit.Text(err), exit.Remedy(err)})
	}
	for i := range found {
		if found[i].grade == "fail" && cfg.Enabled("allow_unsafe_redis") {
			found[i].grade, found[i].detail = "warn",
				found[i].detail+" (allowed by "+cfg["allow_unsafe_redis"].Origin+")"
		}
	}
	return found
}
