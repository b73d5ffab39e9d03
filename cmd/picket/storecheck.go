package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/doctor"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/orchestrator/store"
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
func redisFindings(ctx context.Context, cfg settings.Settings, say func(string, ...any)) []doctor.Finding {
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
	found = append(found, formatFindings(ctx, o, cfg.Namespaces(), say)...)
	for i := range found {
		if found[i].Grade == "fail" && cfg.AllowUnsafeRedis {
			origin, _ := cfg.Origin("allow_unsafe_redis")
			found[i].Grade, found[i].Detail = "warn", found[i].Detail+" (allowed by "+origin+")"
		}
	}
	return found
}

// countPatience is how long the records are counted that the next start converts.
const countPatience = 5 * time.Second

// formatFindings tell which format the namespaces of a Redis have, and what the next start of an
// orchestrator converts. say tells how many records have been counted so far.
func formatFindings(ctx context.Context, where redis.UniversalOptions, namespaces []string,
	say func(string, ...any)) []doctor.Finding {
	enough, stop := context.WithTimeout(ctx, countPatience)
	defer stop()
	states, err := store.CheckFormat(ctx, enough, where, namespaces,
		func(records int64) { say("%d records to convert", records) })
	var found []doctor.Finding
	for _, s := range states {
		f := doctor.Finding{Subject: "store format", Grade: "ok", Detail: s.String()}
		switch {
		case s.Migrating:
			f.Grade, f.Remedy = "warn", "Wait until an orchestrator has converted it. Start one if none runs."
		case s.Old():
			f.Grade = "warn"
			f.Detail += "; servers of earlier versions are refused from then on"
			f.Remedy = "Back up Redis, stop all servers of earlier versions, then start this one; see docs/redis.md."
		}
		found = append(found, f)
	}
	if err != nil {
		found = append(found, doctor.Failed("store format", err))
	}
	return found
}
