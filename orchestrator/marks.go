package orchestrator

import (
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

// Marks are kept beside each piece of output as "offset:ms,offset:ms,…", each
// but the first as the difference to the one before.

func packMarks(marks []picket.LogMark) string {
	var b strings.Builder
	var before picket.LogMark
	for i, m := range marks {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(m.Offset-before.Offset, 10))
		b.WriteByte(':')
		b.WriteString(strconv.FormatInt(int64(m.At-before.At), 10))
		before = m
	}
	return b.String()
}

func (r *reply) marks(packed string) []picket.LogMark {
	var marks []picket.LogMark
	var last picket.LogMark
	for pair := range strings.SplitSeq(packed, ",") {
		offset, at, _ := strings.Cut(pair, ":")
		o, err1 := strconv.ParseInt(offset, 10, 64)
		ms, err2 := strconv.ParseInt(at, 10, 64)
		if err1 != nil || err2 != nil {
			r.fail("marks of output", packed)
			return nil
		}
		last = picket.LogMark{Offset: last.Offset + o, At: last.At + picket.Instant(ms)}
		marks = append(marks, last)
	}
	return marks
}
