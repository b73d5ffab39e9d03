package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/doctor"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

func unsafeFlag(c *cobra.Command) {
	c.Flags().Bool("allow-unsafe-redis", false, "start on a Redis that can lose what was acknowledged; for experiments")
}

// requireSafeStore refuses a start on a store that can lose what was acknowledged.
// The managed store is ours alone, so there a user that may do everything is
// as it should be.
func requireSafeStore(found []doctor.Finding, cfg settings.Settings, log *slog.Logger) error {
	var details, remedies []string
	for _, f := range found {
		switch {
		case f.Grade == "fail" && cfg.AllowUnsafeRedis:
			log.Warn("UNSAFE, and allowed: "+f.Detail, "store", f.Subject, "remedy", f.Remedy)
		case f.Grade == "fail":
			details, remedies = append(details, f.Subject+": "+f.Detail), append(remedies, f.Remedy)
		case cfg.Redis != "":
			log.Warn(f.Detail, "store", f.Subject, "remedy", f.Remedy)
		}
	}
	if details == nil {
		return nil
	}
	remedy := strings.Join(remedies, " ") + " For an experiment that may lose its state: --allow-unsafe-redis."
	return picket.Refuse(exit.CodeUsage, remedy, "the store is not safe: %s", strings.Join(details, "; "))
}

// serverChecks are the checks of `picket doctor` that need the packages of the server.
func serverChecks() doctor.Checks {
	return doctor.Checks{
		Redis:            redisFindings,
		Fences:           fenceFindings,
		WitnessedFloor:   witnessedFloor,
		MissingVariables: missingVariables,
	}
}

// redisFindings asks the configured Redis. That of a server elsewhere is asked
// by the server, when it starts.
func redisFindings(ctx context.Context, cfg settings.Settings) []doctor.Finding {
	url := cfg.Redis
	if url == "" {
		return nil
	}
	o, err := settings.ParseRedisURL(url)
	if err != nil {
		return []doctor.Finding{doctor.Failed("redis", err)}
	}
	found, err := storeFindings(ctx, o)
	if err != nil {
		return []doctor.Finding{
			{Subject: "redis", Grade: "fail", Detail: "it cannot be asked: " + term.OneLine(err.Error())},
		}
	}
	if len(found) == 0 {
		found = []doctor.Finding{{Subject: "redis", Grade: "ok", Detail: "keeps what it acknowledges"}}
	}
	if err := checkFormat(ctx, o, cfg.Namespaces()); err != nil {
		found = append(found, doctor.Failed("store format", err))
	}
	for i := range found {
		if found[i].Grade == "fail" && cfg.AllowUnsafeRedis {
			origin, _ := cfg.Origin("allow_unsafe_redis")
			found[i].Grade, found[i].Detail = "warn", found[i].Detail+" (allowed by "+origin+")"
		}
	}
	return found
}
