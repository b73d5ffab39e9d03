package kit

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/internal/rig"
)

var (
	ulidText = regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b|_[0-9A-HJKMNP-TV-Z]{26}`)
	macText  = regexp.MustCompile(`\.[A-Za-z0-9_-]{43}\b`)
	// tokens and sequence numbers after an adoption
	aboveFloor = regexp.MustCompile(`\b4503[0-9]{12}\b`)
	// of a secret that differs from run to run
	sessionText = regexp.MustCompile(`(?m)^pk:\{default\}:(?:session|login:).*$`)
	digestText  = regexp.MustCompile(`[0-9a-f]{64}`)
	hashText    = regexp.MustCompile(`secret [0-9a-f]{64}`)
	sizeText    = regexp.MustCompile(`(size (?:bytes|sum)) [0-9]+`)
	sealedText  = regexp.MustCompile(`(secret|url|token|credentials) [A-Za-z0-9_-]{44,}`) // never the same twice
)

// Dump writes everything a namespace holds, one line a value, sorted. Ids that
// differ from run to run are numbered in the order they were made, so two runs
// of the same story read the same.
func Dump(ctx context.Context, c redis.UniversalClient, answer any) (text string, err error) {
	var lines []string
	keys := c.Scan(ctx, 0, "pk:{default}:*", 1000).Iterator()
	for keys.Next(ctx) {
		rows, err := rowsOf(ctx, c, keys.Val())
		if err != nil {
			return "", fmt.Errorf("dump %s: %w", keys.Val(), err)
		}
		for _, row := range rows {
			lines = append(lines, keys.Val()+" "+row)
		}
	}
	if err := keys.Err(); err != nil {
		return "", err
	}
	said, err := json.Marshal(answer, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("dump the answer: %w", err)
	}
	lines = append(lines, "answer "+string(said))
	text = hashText.ReplaceAllString(strings.Join(lines, "\n"), "secret (hash)")
	text = sealedText.ReplaceAllString(text, "$1 (sealed)")
	text = sizeText.ReplaceAllString(text, "$1 (bytes)")
	text = sessionText.ReplaceAllStringFunc(text,
		func(line string) string { return digestText.ReplaceAllString(line, "(hash)") })
	text = macText.ReplaceAllString(text, ".(mac)")
	return numberIDs(numberIDs(text, ulidText), aboveFloor), nil
}

// rowsOf reads the rows of one key, whatever its type.
func rowsOf(ctx context.Context, c redis.UniversalClient, key string) ([]string, error) {
	kind, err := c.Type(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	var rows []string
	if rig.IsRecord(key) {
		fields, err := rig.ReadRecord(ctx, c, key)
		return fieldRows(fields), err
	}
	switch kind {
	case "string":
		v, err := c.Get(ctx, key).Result()
		return []string{v}, err
	case "hash":
		fields, err := c.HGetAll(ctx, key).Result()
		return fieldRows(fields), err
	case "list":
		l, err := c.LRange(ctx, key, 0, -1).Result()
		for i, v := range l {
			rows = append(rows, fmt.Sprintf("%d %s", i, v))
		}
		return rows, err
	case "set":
		return c.SMembers(ctx, key).Result()
	case "zset":
		z, err := c.ZRangeWithScores(ctx, key, 0, -1).Result()
		for _, m := range z {
			rows = append(rows, fmt.Sprintf("%.0f %s", m.Score, m.Member))
		}
		return rows, err
	case "stream":
		entries, err := c.XRange(ctx, key, "-", "+").Result()
		if err != nil {
			return nil, err
		}
		entries, err = EventEntries(entries)
		for _, e := range entries {
			rows = append(rows, fmt.Sprintf("%s %v", e.ID, e.Values))
		}
		return rows, err
	}
	return nil, fmt.Errorf("a key of type %s", kind)
}

func fieldRows(fields map[string]string) []string {
	var rows []string
	for name, value := range fields {
		rows = append(rows, name+" "+value)
	}
	return rows
}

// numberIDs replaces what the pattern finds by its rank: ids sort in the order
// they were made, tokens in the order they were granted.
func numberIDs(text string, pattern *regexp.Regexp) string {
	found := pattern.FindAllString(text, -1)
	for i := range found {
		found[i] = strings.TrimPrefix(found[i], "_")
	}
	slices.SortFunc(found, compareIDs)
	var pairs []string
	for i, id := range slices.Compact(found) {
		pairs = append(pairs, id, fmt.Sprintf("#%d", i))
	}
	lines := strings.Split(strings.NewReplacer(pairs...).Replace(text), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// compareIDs sorts ids by when they were made. The id of a subtask is made of its
// parent's and a key: its time is not a time, and it comes last.
func compareIDs(a, b string) int {
	return cmp.Or(cmp.Compare(derived(a), derived(b)), cmp.Compare(a, b))
}

func derived(id string) int {
	if u, err := ulid.ParseStrict(id); err == nil && time.Since(u.Timestamp()).Abs() > 24*time.Hour {
		return 1
	}
	return 0
}

// WithoutLines drops the lines that begin with any of the words.
func WithoutLines(text string, words ...string) string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(line, w) })
	})
	return strings.Join(lines, "\n")
}

// DiffLines lists the lines that only one of two dumps has.
func DiffLines(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	var out []string
	for _, line := range g {
		if !slices.Contains(w, line) {
			out = append(out, "  got  "+line)
		}
	}
	for _, line := range w {
		if !slices.Contains(g, line) {
			out = append(out, "  want "+line)
		}
	}
	if len(out) == 0 && got != want {
		out = append(out, "  a line stands there another number of times")
	}
	return strings.Join(out, "\n")
}
