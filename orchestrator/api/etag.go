package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

const (
	ifMatchHeader = "If-Match"
	etagHeader    = "ETag"
	maxMatches    = 32
)

// etag is the entity tag of a version.
func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// ifMatch reads the versions that a change accepts: "14", W/"14", 14, or a list of these. sent is
// false without the header. For * the list is empty, because any version is accepted. Weak tags
// count like strong ones: a version names the whole of a record, so there is nothing that they
// could leave open.
func ifMatch(h http.Header) (versions []int64, sent bool, err error) {
	lines := h.Values(ifMatchHeader)
	if len(lines) == 0 {
		return nil, false, nil
	}
	whole := strings.Join(lines, ",")
	if strings.Trim(whole, " \t") == "*" {
		return nil, true, nil
	}
	for tag := range strings.SplitSeq(whole, ",") {
		tag = strings.Trim(tag, " \t")
		if tag == "" {
			continue // RFC 9110 lets a list have empty elements
		}
		version, ok := parseETag(tag)
		if !ok || len(versions) == maxMatches {
			return nil, true, badMatch()
		}
		versions = append(versions, version)
	}
	if len(versions) == 0 {
		return nil, true, badMatch()
	}
	return versions, true, nil
}

// parseETag reads one tag. Only the form that etag writes is a version: tags
// are compared as text, so "07" is not 7.
func parseETag(tag string) (int64, bool) {
	text, weak := strings.CutPrefix(tag, "W/")
	inner, opened := strings.CutPrefix(text, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	if opened != closed || weak && !opened {
		return 0, false
	}
	version, err := strconv.ParseInt(inner, 10, 64)
	return version, err == nil && version >= 0 && version <= picket.MaxNumber && strconv.FormatInt(version, 10) == inner
}

func badMatch() error {
	return picket.Invalid(ifMatchHeader, `Send the ETag of the record, such as "14", or * for any version.`,
		"%s is neither a version, nor a list of at most %d versions, nor *", ifMatchHeader, maxMatches)
}

// requireIfMatch is the If-Match of a change that must have one.
func (r request) requireIfMatch() ([]int64, error) {
	versions, sent, err := ifMatch(r.Request().Header)
	if !sent {
		return nil, picket.Refuse(picket.CodePreconditionRequired,
			"Read the agent, decide, and send the ETag of that answer as If-Match; * means any version.",
			"this change needs If-Match").
			With("field", ifMatchHeader)
	}
	return versions, err
}
