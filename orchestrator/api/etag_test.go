package api_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/api"
)

func ifMatch(lines ...string) ([]int64, bool, error) {
	return api.IfMatch(http.Header{"If-Match": lines})
}

func TestIfMatchIsRead(t *testing.T) {
	for _, tt := range []struct {
		sent []string
		want []int64
	}{
		{[]string{`"14"`}, []int64{14}},
		{[]string{`W/"14"`}, []int64{14}},
		{[]string{`14`}, []int64{14}},
		{[]string{` "14" `}, []int64{14}},
		{[]string{`"0"`}, []int64{0}},
		{[]string{`"9007199254740991"`}, []int64{1<<53 - 1}},
		{[]string{`"1", W/"2" ,3`}, []int64{1, 2, 3}},
		{[]string{`"1"`, `"2"`}, []int64{1, 2}},
		{[]string{`,"1",,`}, []int64{1}},
		{[]string{`*`}, nil},
		{[]string{` * `}, nil},
	} {
		got, sent, err := ifMatch(tt.sent...)
		if err != nil || !sent || !slices.Equal(got, tt.want) {
			t.Errorf("%q: %v, %v, %v; want %v", tt.sent, got, sent, err, tt.want)
		}
	}
	if got, sent, err := ifMatch(); got != nil || sent || err != nil {
		t.Errorf("without the header: %v, %v, %v", got, sent, err)
	}
}

func TestBadIfMatchIsRefused(t *testing.T) {
	for _, sent := range []string{``, `,`, `"`, `""`, `"14`, `14"`, `W/14`, `w/"14"`, `W/`, `"07"`, `"-1"`, `"+1"`,
		`"1.0"`, `"1e3"`, `0x1`, `"a"`, `'1'`, `"1,2"`,
		`"9007199254740992"`, `"99999999999999999999"`, `*,"1"`, `"1",*`, `"*"`, `"1" "2"`, `"١"`,
		strings.Repeat(`"1",`, 33)} {
		got, present, err := ifMatch(sent)
		var refusal *picket.Error
		if !errors.As(err, &refusal) || refusal.Code != picket.CodeValidation || refusal.Facts["field"] != "If-Match" ||
			refusal.Remedy == "" || !present || got != nil {
			t.Errorf("%q: %v, %v, %v", sent, got, present, err)
		}
	}
}

// FuzzIfMatch reads any header: nothing but versions comes out, and what comes
// out reads the same when it is sent back.
func FuzzIfMatch(f *testing.F) {
	for _, s := range []string{``, `*`, `"1"`, `W/"1"`, `1, 2`, `"1",,"2"`, `W/"`, `"9007199254740991"`, "\x00",
		`"1", *`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		versions, present, err := ifMatch(sent)
		if !present || err != nil && versions != nil || len(versions) > 32 {
			t.Fatalf("%q: %v, %v, %v", sent, versions, present, err)
		}
		if err == nil && versions == nil && strings.Trim(sent, " \t") != "*" {
			t.Fatalf("%q means any version", sent)
		}
		tags := make([]string, len(versions))
		for i, v := range versions {
			if v < 0 || v > picket.MaxNumber {
				t.Fatalf("%q: version %d", sent, v)
			}
			tags[i] = api.ETag(v)
		}
		if len(tags) == 0 {
			return
		}
		if again, _, err := ifMatch(strings.Join(tags, ", ")); err != nil || !slices.Equal(again, versions) {
			t.Fatalf("%q: %v, sent back %v, %v", sent, versions, again, err)
		}
	})
}
