package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/orchestrator/lua"
)

// All verbs are one library of Redis functions. Its name has a digest of its code, so servers of
// two builds work on one Redis, each with its own library. A server loads its library where Redis
// does not have it.

// isFunctionMissing recognises the answer of a Redis that does not have the library. It has done nothing.
func isFunctionMissing(err error) bool { return redis.HasErrorPrefix(err, "Function not found") }

// load gives the library to the server that holds a namespace, by way of c. Callers that need it at
// the same time wait for one load.
func (g *scriptRunner) load(ctx context.Context, c processor, namespace string) error {
	done := g.loads.DoChan(fmt.Sprintf("%s %p", namespace, c), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.timeout)
		defer cancel()
		return nil, g.loadLibrary(ctx, c, namespace)
	})
	select {
	case got := <-done:
		return got.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *scriptRunner) loadLibrary(ctx context.Context, c processor, namespace string) error {
	node, err := nodeOf(ctx, c, namespace)
	if err != nil {
		return err
	}
	err = loadInto(ctx, node, g.program.Library().Loaded(g.now()), false)
	switch {
	case redis.HasErrorPrefix(err, "Library '"+g.program.Library().Name+"' already exists"):
		return nil // another server was faster
	case redis.HasErrorPrefix(err, "OOM"):
		return picket.Refuse(picket.CodeStoreFull, "Free memory or raise maxmemory of the Redis server. Nothing was changed.",
			"the store is so full that it cannot take the functions of this version").WithCause(err)
	}
	return err
}

// nodeOf is where a namespace is: the server that holds it in a cluster, otherwise c itself.
func nodeOf(ctx context.Context, c processor, namespace string) (processor, error) {
	if cluster, ok := c.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, MetaKey(namespace))
	}
	return c, nil
}

func loadInto(ctx context.Context, c processor, code string, replace bool) error {
	args := []any{"FUNCTION", "LOAD"}
	if replace {
		args = append(args, "REPLACE")
	}
	return c.Process(ctx, redis.NewCmd(ctx, append(args, code)...))
}

// linePattern finds the line of the library that an error of Redis names.
var linePattern = lazyregexp.New(`user_function:(\d+):`)

// placeOf says which line of which file an error of a function names, for the log.
func (g *scriptRunner) placeOf(text string) string {
	m := linePattern().FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	line, _ := strconv.Atoi(m[1])
	file, at := g.program.Library().Place(line)
	if file == "" {
		return ""
	}
	return fmt.Sprintf(" (%s.lua:%d)", file, at)
}

// A server loads its library again when it is half a day old, so a library of more than
// a day is in use nowhere. If one is deleted all the same, the next call loads it.
const (
	refreshLibraryAfter = 12 * time.Hour
	deleteLibraryAfter  = 24 * time.Hour
)

// libraryName matches the names of libraries of all builds.
var libraryName = lazyregexp.New(`^picket_[0-9a-f]{16}$`)

// TidyLibraries deletes the libraries of builds that no server has run for a day, and keeps that of this
// build from being deleted. A store in memory has no libraries.
func (s *Store) TidyLibraries(ctx context.Context) error {
	if s.cfg.Memory {
		return nil
	}
	var errs []error
	tidied := map[redis.Cmdable]bool{}
	for _, n := range s.namespaces {
		node, err := nodeOf(ctx, s.uncheckedClient, n.name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if c := node.(redis.Cmdable); !tidied[c] {
			tidied[c] = true
			errs = append(errs, s.tidyNode(ctx, c))
		}
	}
	return errors.Join(errs...)
}

// tidyLibraries is TidyLibraries for a server, which only logs that it did not work.
func (s *Store) tidyLibraries(ctx context.Context) {
	if err := s.TidyLibraries(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("the functions of other builds could not be deleted", "err", err)
	}
}

func (s *Store) tidyNode(ctx context.Context, c redis.Cmdable) error {
	list, err := c.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: "picket_*"}).Result()
	if err != nil {
		return fmt.Errorf("list the functions: %w", err)
	}
	own := s.runner.program.Library()
	for _, l := range list {
		age, known := s.libraryAge(l)
		switch {
		case !known:
		case l.Name == own.Name && age.Abs() > refreshLibraryAfter:
			err = c.FunctionLoadReplace(ctx, own.Loaded(s.cfg.Now())).Err()
		case l.Name != own.Name && age > deleteLibraryAfter:
			s.cfg.Log.Info("the functions of another build are deleted: no server has used them for a day",
				"library", l.Name)
			err = c.FunctionDelete(ctx, l.Name).Err()
		}
		if err != nil && !redis.HasErrorPrefix(err, "Library not found") { // another server was faster
			return fmt.Errorf("tidy the functions: %w", err)
		}
		err = nil
	}
	return nil
}

// libraryAge is how long ago a library was loaded. It is known of the libraries of Picket only.
func (s *Store) libraryAge(l redis.Library) (age time.Duration, known bool) {
	if !libraryName().MatchString(l.Name) || len(l.Functions) == 0 {
		return 0, false
	}
	said, ok := strings.CutPrefix(l.Functions[0].Description, lua.LoadedAt)
	loaded, err := time.Parse(time.RFC3339, said)
	return s.cfg.Now().Sub(loaded), ok && err == nil
}
