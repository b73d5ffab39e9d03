package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// The meta record of a store contains the version of its format. Every call
// compares it with the format of this build, FORMAT in lua/part/_base.lua, in the
// same step in which it would read or write. If the formats differ, the call is
// refused. So a process of an earlier version stops as soon as a later version has
// raised the format, and this version reads nothing before the store is converted.

// storeNewer is the error for a store that a later version has written. Its code
// is CodeUnavailable, so clients retry until another process can serve them.
func storeNewer(f facts) error {
	e := picket.Refuse(picket.CodeUnavailable,
		"Nothing was changed. Update picket on this machine to the version that wrote the store, or a later one.",
		"the store has format %s, and this version of picket knows formats up to %s", f["format"], f["known"])
	return e.With("storeFormat", ParseInt(f["format"])).With("knownFormat", ParseInt(f["known"])).
		WithCause(errStoreNewer)
}

// storeMigrating is the error for a store that is being converted, or has to be. Its code is
// CodeUnavailable, so clients retry until it has been converted.
func storeMigrating(format, known int64) error {
	message := fmt.Sprintf("the store is being converted to format %d, and nothing else can be done until then", known)
	remedy := "Wait, and repeat the same request later: the conversion ends without your help, and the log of the server shows how far it is."
	if format < known {
		message = fmt.Sprintf("the store has format %d, and this version of picket converts it to format %d first",
			format, known)
		remedy = "Start an orchestrator of this version (`picket up` or `picket serve orchestrator`). If one runs, wait a moment and repeat the same request."
	}
	e := picket.Refuse(picket.CodeUnavailable, remedy, "%s", message)
	e.RetryAfter = time.Second
	return e.With("storeFormat", format).With("knownFormat", known).WithCause(errStoreMigrating)
}

// FormatState is the format of a namespace, as [CheckFormat] finds it.
type FormatState struct {
	Namespace string
	Format    int64 // 0: the namespace does not exist
	Known     int64 // the format that this build stores
	Migrating bool  // it is being converted
	// Records are those that are not converted yet, none in a store of format 2. There may be more if not Counted.
	Records int64
	Counted bool
}

// Old reports whether an orchestrator of this build converts the namespace before it uses it.
func (s FormatState) Old() bool { return s.Format != 0 && (s.Format < s.Known || s.Migrating) }

// CheckFormat reports the format of each namespace of a store. It counts the records that the next
// start converts, until enough ends, and calls progress with their number after each page. The error
// says that this build cannot work on a namespace. CheckFormat writes nothing, and loads no functions.
func CheckFormat(ctx, enough context.Context, where redis.UniversalOptions, namespaces []string,
	progress func(records int64)) ([]FormatState, error) {
	program, err := builtin()
	if err != nil {
		return nil, fmt.Errorf("check the format: %w", err)
	}
	where.MaxRetries, where.DialerRetries, where.ContextTimeoutEnabled = -1, 1, true
	client := redis.NewUniversalClient(&where)
	defer client.Close()
	g := &scriptRunner{program: program}
	var states []FormatState
	for _, ns := range namespaces {
		got, err := client.Eval(ctx, program.Verbs["identify"].Script(), []string{MetaKey(ns)}).Result()
		if err != nil {
			return states, fmt.Errorf("check the format of namespace %s: %w", ns, g.replyError("identify", err))
		}
		var r identityReply
		reply := NewReply("identify", got)
		if reply.Decode(&r); reply.Err != nil {
			return states, fmt.Errorf("check the format of namespace %s: %w", ns, reply.Err)
		}
		s := FormatState{Namespace: ns, Known: r.Known, Migrating: r.Migrating != ""}
		if r.Store != "" {
			s.Format = r.Format
		}
		s.Counted = s.Format == readFormat && !s.Migrating
		if s.Old() && !s.Counted {
			if err := s.count(enough, client, progress); err != nil {
				return states, fmt.Errorf("count the records of namespace %s: %w", ns, err)
			}
		}
		states = append(states, s)
	}
	return states, nil
}

// readFormat is the earlier format whose records every verb reads. In a store of this format the script migrate only
// raises the number.
const readFormat = 2

// countStep is about how many keys of the store are looked at for a page of the count.
const countStep = 1000

// convertedKinds are the records that the script migrate converts, by the names of their keys.
var convertedKinds = []string{"task:", "run:", "env:"}

// count counts the records that are hashes, until enough ends.
func (s *FormatState) count(enough context.Context, client redis.UniversalClient, progress func(records int64)) error {
	node, err := nodeOf(enough, client, s.Namespace)
	for i := 0; i < len(convertedKinds) && err == nil; i++ {
		err = s.countKind(enough, node, keyPrefix(s.Namespace)+convertedKinds[i]+"*", progress)
	}
	if s.Counted = err == nil; enough.Err() != nil {
		return nil
	}
	return err
}

func (s *FormatState) countKind(enough context.Context, node processor, keys string,
	progress func(records int64)) error {
	for cursor := uint64(0); ; {
		cmd := redis.NewScanCmd(enough, node.Process, "SCAN", cursor, "MATCH", keys, "COUNT", countStep,
			"TYPE", "hash")
		if err := node.Process(enough, cmd); err != nil {
			return err
		}
		page, next := cmd.Val()
		s.Records += int64(len(page))
		progress(s.Records)
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// String is the format in words.
func (s FormatState) String() string {
	switch {
	case s.Format == 0:
		return s.Namespace + " does not exist yet"
	case !s.Old():
		return s.Namespace + " has format " + strconv.FormatInt(s.Format, 10)
	}
	records := strconv.FormatInt(s.Records, 10) + " records"
	switch {
	case !s.Counted:
		records = "more than " + records
	case s.Records == 1:
		records = "1 record"
	}
	if s.Migrating {
		return fmt.Sprintf("%s is being converted to format %d; still to do: %s", s.Namespace, s.Known, records)
	}
	return fmt.Sprintf("%s has format %d: the next start of an orchestrator converts %s to format %d",
		s.Namespace, s.Format, records, s.Known)
}
