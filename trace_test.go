package picket_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

const (
	aTraceID = "0af7651916cd43dd8448eb211c80319c"
	aSpanID  = "b7ad6b7169203331"
	aParent  = "00-" + aTraceID + "-" + aSpanID + "-01"
)

func TestParseTraceParent(t *testing.T) {
	ids := aTraceID + "-" + aSpanID
	for sent, want := range map[string]string{
		aParent:                                aParent,
		"00-" + ids + "-00":                    "00-" + ids + "-00",
		"00-" + ids + "-03":                    "00-" + ids + "-03",
		"00-" + ids + "-ff":                    "00-" + ids + "-03", // flags that are not known yet are 0
		"00-" + ids + "-f8":                    "00-" + ids + "-00",
		"cc-" + ids + "-01":                    aParent,
		"cc-" + ids + "-03":                    aParent, // of a later version only sampled is known
		"cc-" + ids + "-01-what-the-future-is": aParent,
		"01-" + ids + "-00-":                   "00-" + ids + "-00",
		"":                                     "",
		"00-" + ids + "-01-":                   "",
		"00-" + ids + "-01-what":               "",
		"00-" + ids + "-01.":                   "",
		"cc-" + ids + "-01.what":               "",
		"cc-" + ids + "-01what":                "",
		"ff-" + ids + "-01":                    "",
		"0-" + ids + "-01":                     "",
		"000-" + ids + "-01":                   "",
		".0-" + ids + "-01":                    "",
		"0A-" + ids + "-01":                    "",
		"00-" + strings.ToUpper(ids) + "-01":   "",
		"00-" + strings.Repeat("0", 32) + "-" + aSpanID + "-01":  "",
		"00-" + aTraceID + "-" + strings.Repeat("0", 16) + "-01": "",
		"00-" + aTraceID[:31] + ".-" + aSpanID + "-01":           "",
		"00-" + aTraceID + "-" + aSpanID[:15] + ".-01":           "",
		"00-" + aTraceID[:31] + "-" + aSpanID + "-01":            "",
		"00-" + aTraceID + "0-" + aSpanID + "-01":                "",
		"00_" + ids + "-01":                      "",
		"00-" + aTraceID + "_" + aSpanID + "-01": "",
		"00-" + ids + "_01":                      "",
		"00-" + ids + "-1":                       "",
		"00-" + ids + "-.0":                      "",
		"00-" + ids + "-0\n":                     "",
		aParent + " ":                            "",
		" " + aParent:                            "",
	} {
		got := picket.ParseTrace([]string{sent}, []string{"a=1"})
		if want == "" && got != nil || want != "" && (got == nil || *got != picket.Trace{Parent: want, State: "a=1"}) {
			t.Errorf("%q: %+v, want %q", sent, got, want)
		}
	}
	if got := picket.ParseTrace([]string{aParent, aParent}, nil); got != nil {
		t.Errorf("sent twice: %+v", got)
	}
	if got := picket.ParseTrace(nil, []string{"a=1"}); got != nil {
		t.Errorf("a state alone: %+v", got)
	}
	if got := picket.ParseTrace([]string{aParent}, nil); got.ID() != aTraceID || (*picket.Trace)(nil).ID() != "" {
		t.Errorf("the id is %q", got.ID())
	}
}

func TestParseTraceState(t *testing.T) {
	members := func(from, n, size int) []string {
		var out []string
		for i := from; i < from+n; i++ {
			m := fmt.Sprintf("k%d=", i)
			out = append(out, m+strings.Repeat("v", size-len(m)))
		}
		return out
	}
	list := func(m ...[]string) string {
		var all []string
		for _, part := range m {
			all = append(all, part...)
		}
		return strings.Join(all, ",")
	}
	for _, tt := range []struct {
		sent string
		want string
	}{
		{"foo=1", "foo=1"},
		{"foo=1,bar=2", "foo=1,bar=2"},
		{" foo=1 \t,\tbar=2 ", "foo=1,bar=2"},
		{"foo=1,,,bar=2,", "foo=1,bar=2"},
		{"t@v=x, 0t@v=y", "t@v=x,0t@v=y"},
		{"a_-*/9=!#$%&'()*+-./:;<>?@[]^_`{|}~\" \\x", "a_-*/9=!#$%&'()*+-./:;<>?@[]^_`{|}~\" \\x"},
		{strings.Repeat("z", 256) + "=1", strings.Repeat("z", 256) + "=1"},
		{strings.Repeat("t", 241) + "@" + strings.Repeat("v", 14) + "=1",
			strings.Repeat("t", 241) + "@" + strings.Repeat("v", 14) + "=1"},
		{"foo=" + strings.Repeat("v", 256), "foo=" + strings.Repeat("v", 256)},
		{list(members(0, 32, 10)), list(members(0, 32, 10))},
		{"", ""},
		{"foo", ""},
		{"foo=", ""},
		{"=1", ""},
		{"foo=1,foo=2", ""},
		{"foo=1,bar", ""},
		{"foo=1=2", ""},
		{"Foo=1", ""},
		{"0foo=1", ""},
		{"foo@=1", ""},
		{"@v=1", ""},
		{"t@v@w=1", ""},
		{"t@0v=1", ""},
		{"foo bar=1", ""},
		{"foo =1", ""},
		{"foo=a\tb", ""},
		{"foo=ü", ""},
		{"foo=\x7f", ""},
		{strings.Repeat("z", 257) + "=1", ""},
		{strings.Repeat("t", 242) + "@v=1", ""},
		{"t@" + strings.Repeat("v", 15) + "=1", ""},
		{"foo=" + strings.Repeat("v", 257), ""},
		{list(members(0, 33, 10)), ""},
		{list(members(0, 4, 127)), list(members(0, 4, 127))},                     // 511
		{list(members(0, 5, 127)), list(members(0, 4, 127))},                     // the last one goes
		{list(members(0, 1, 129), members(1, 4, 100)), list(members(1, 4, 100))}, // the long one goes
		// one is enough
		{list(members(0, 1, 130), members(1, 1, 128), members(2, 1, 130), members(3, 1, 128)),
			list(members(0, 1, 130), members(1, 1, 128), members(3, 1, 128))},
		{list(members(0, 32, 100)), list(members(0, 5, 100))},
	} {
		if got := picket.ParseTrace([]string{aParent}, []string{tt.sent}); got == nil || got.State != tt.want ||
			got.Parent != aParent {
			t.Errorf("%.80q: %+v, want %.80q", tt.sent, got, tt.want)
		}
	}
	if got := picket.ParseTrace([]string{aParent},
		[]string{"foo=1", "", "bar=2,", "baz=3"}); got.State != "foo=1,bar=2,baz=3" {
		t.Errorf("several headers: %q", got.State)
	}
}

// Whatever is sent, what is kept is valid, bounded, and read again as itself.
func FuzzParseTrace(f *testing.F) {
	valid := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]$`)
	for _, s := range []string{aParent, "cc" + aParent[2:] + "-x", "", "00-"} {
		f.Add(s, "foo=1, t@v=2,,")
		f.Add(s, strings.Repeat("a=b,", 40))
		f.Add(s, "k="+strings.Repeat("v", 256)+",l="+strings.Repeat("v", 250)+",m=n")
	}
	f.Fuzz(func(t *testing.T, parent, state string) {
		got := picket.ParseTrace([]string{parent}, []string{state})
		if got == nil {
			return
		}
		if !valid.MatchString(got.Parent) || len(got.State) > 512 || strings.ContainsAny(got.State, "\r\n\x00") {
			t.Fatalf("kept %+v", got)
		}
		if again := picket.ParseTrace([]string{got.Parent}, []string{got.State}); again == nil || *again != *got {
			t.Fatalf("%+v is read again as %+v", got, again)
		}
	})
}
