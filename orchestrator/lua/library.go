package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Library is the library of Redis functions that has all verbs, one function for each.
type Library struct {
	// Name has a digest of the code, so that two builds have each their own library in
	// one Redis.
	Name string

	source string // with its comments
	code   string // without; both have placeholders
	starts []start
}

// start is the line at which a file begins in a library.
type start struct {
	line int
	file string
}

// Placeholders stand for what is not part of the digest.
const (
	namePlaceholder   = "@library@"
	loadedPlaceholder = "@loaded@"
)

// LoadedAt begins the description of every function of a library. The time at which a
// server loaded it follows.
const LoadedAt = "loaded "

// Source returns the code with its comments.
func (l *Library) Source() string { return l.source }

// Function returns the name of the function that runs a verb.
func (l *Library) Function(verb string) string { return l.Name + "_" + verb }

// Batch returns the name of the function that runs several verbs. Verbs with the flag allow-oom
// run even if Redis is over its maxmemory, so they have a function of their own for their batches.
func (l *Library) Batch(allowOOM bool) string {
	if allowOOM {
		return l.Name + "_batch_oom"
	}
	return l.Name + "_batch"
}

// Loaded returns the code for a server that loads it now. The functions say when that was.
func (l *Library) Loaded(now time.Time) string {
	return strings.NewReplacer(namePlaceholder, l.Name, loadedPlaceholder, LoadedAt+now.UTC().Format(time.RFC3339)).
		Replace(l.code)
}

// Place returns the file that has a line of the library, and which line of the file that
// is. The file is "" if no file has it.
func (l *Library) Place(line int) (file string, lineOfFile int) {
	i, _ := slices.BinarySearchFunc(l.starts, line+1, func(s start, line int) int { return s.line - line })
	if i == 0 {
		return "", 0
	}
	return l.starts[i-1].file, line - l.starts[i-1].line + 1
}

// writer writes a library and notes where its files begin.
type writer struct {
	strings.Builder
	line   int // of what is written next
	starts []start
}

// add writes the text of a file, or one of no file.
func (w *writer) add(file, text string) {
	w.starts = append(w.starts, start{w.line, file})
	w.WriteString(text)
	w.line += strings.Count(text, "\n")
}

const libraryHead = "#!lua name=" + namePlaceholder + "\nlocal KEYS, ARGV -- of the call that runs\n"

const libraryRegister = `local verbs, verb_reads = {}, {} -- those that may be in a batch, by name, and what they read
local function register(name, flags, callback)
  redis.register_function{ function_name = '` + namePlaceholder + `_' .. name, description = '` + loadedPlaceholder + `',
    flags = flags, callback = function(keys, args)
      KEYS, ARGV = keys, args
      return callback()
    end }
end
local function register_verb(name, verb, clockless, alone, reads, flags)
  if not alone then verbs[name], verb_reads[name] = verb, reads end
  register(name, flags, function() return run(verb, clockless, reads) end)
end
register('batch', {}, function() return run_batch(verbs, verb_reads) end)
register('batch_oom', { 'allow-oom' }, function() return run_batch(verbs, verb_reads) end)
`

// newLibrary puts all verbs together.
func (p *Program) newLibrary() *Library {
	w := &writer{line: 1}
	w.add("", libraryHead)
	for _, name := range slices.Concat(base, p.parts) {
		w.add(name, p.stands[name])
	}
	w.add("", libraryRegister)
	for _, name := range slices.Sorted(maps.Keys(p.Verbs)) {
		v := p.Verbs[name]
		flags := ""
		if len(v.Flags) > 0 {
			flags = "'" + strings.Join(v.Flags, "', '") + "'"
		}
		w.add(name, fmt.Sprintf("register_verb('%s', function() %s\nend, %t, %t, %s, { %s })\n", name, v.body, v.clockless,
			v.Alone, v.reads, flags))
	}
	code := withoutComments(w.String())
	sum := sha1.Sum([]byte(code))
	return &Library{Name: "picket_" + hex.EncodeToString(sum[:8]), source: w.String(), code: code, starts: w.starts}
}
