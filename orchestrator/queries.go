package orchestrator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/picket-dev/picket"
)

// What queries and arguments of several nouns have in common.

// boolArg is a boolean as scripts read it.
func boolArg(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

// maxListRows bounds listings that are not paged.
const maxListRows = 1000

// pageLimit returns how many rows a page may have: usual if limit is 0.
func pageLimit(limit, usual, most int) (int, error) {
	limit = cmp.Or(limit, usual)
	if limit < 1 || limit > most {
		return 0, picket.Invalid("limit", fmt.Sprintf("Send a number from 1 to %d.", most),
			"limit is %d, allowed are 1 to %d", limit, most)
	}
	return limit, nil
}

// checkNumericCursor refuses a cursor that is neither empty nor a number of the store.
func checkNumericCursor(cursor string) error {
	if n, err := strconv.ParseInt(cmp.Or(cursor, "0"), 10, 64); err != nil || n < 0 || n > 1<<53 {
		return badCursor("nextCursor")
	}
	return nil
}

// badCursor refuses a cursor. next is the member in which the page before has one.
func badCursor(next string) error {
	return picket.Invalid("cursor", "Send "+next+" of the page before, or leave it out.", "cursor is not one of ours")
}

// filterSets names the sets of tasks that a filter means. Empty values filter nothing.
func filterSets(role, parent, assignee string, labels map[string]string) (sets []any, err error) {
	if role != "" {
		if err := picket.CheckName("role", role); err != nil {
			return nil, err
		}
		sets = append(sets, "by-role:"+role)
	}
	if parent != "" {
		if err := picket.CheckID("parent", "task", parent); err != nil {
			return nil, err
		}
		sets = append(sets, "children:"+parent)
	}
	if assignee != "" {
		if err := picket.CheckAssignee("assignee", assignee); err != nil {
			return nil, err
		}
		sets = append(sets, "by-assignee:"+assignee)
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if err := picket.CheckLabel("label", k, labels[k]); err != nil {
			return nil, err
		}
		sets = append(sets, "by-label:"+k+"="+labels[k])
	}
	return sets, nil
}
