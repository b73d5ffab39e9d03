package sse

import (
	"bytes"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestAppendTo(t *testing.T) {
	for want, e := range map[string]Event{
		"\n":                                {},
		"retry: 1000\nid: 7\n\n":            {Retry: time.Second, ID: "7"},
		": keep-alive\nid: 7\n\n":           {Comment: "keep-alive", ID: "7"},
		"event: reset\nid: 7\ndata: {}\n\n": {Type: "reset", ID: "7", Data: []byte("{}")},
		"data: \n\n":                        {Data: []byte{}},
		"data: a\ndata: b\n\n":              {Data: []byte("a\nb")},
		"data: a\ndata: b\ndata: c\n\n":     {Data: []byte("a\rb\r\nc")},
		": a b\nevent: c  d\nid: e f\n\n":   {Comment: "a\nb", Type: "c\r\nd", ID: "e\rf", Raw: []byte("ignored")},
	} {
		if got := string(e.AppendTo(nil)); got != want {
			t.Errorf("%+v is written as %q, want %q", e, got, want)
		}
	}
}

func TestWriterFlushesEachEvent(t *testing.T) {
	w := httptest.NewRecorder()
	if err := NewWriter(w, time.Minute).Write(Event{Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if got := w.Body.String(); got != "data: x\n\n" || !w.Flushed {
		t.Errorf("wrote %q, flushed %v", got, w.Flushed)
	}
	if err := NewWriter(failingWriter{w}, time.Minute).Write(Event{}); err != io.ErrClosedPipe {
		t.Errorf("a failed write gives %v", err)
	}
}

type failingWriter struct{ *httptest.ResponseRecorder }

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestNext(t *testing.T) {
	long := "data: " + strings.Repeat("x", 60) + "\n"
	for name, tc := range map[string]struct {
		stream string
		want   []Event // Raw is compared as a whole
		end    error
	}{
		"nothing":    {"", []Event{{}}, io.EOF},
		"all fields": {"event: e\nid: 1\ndata: d\n\n", []Event{{Type: "e", ID: "1", Data: []byte("d")}, {}}, io.EOF},
		"CRLF":       {"event: e\r\ndata: d\r\n\r\n", []Event{{Type: "e", Data: []byte("d")}, {}}, io.EOF},
		"CR": {"event: e\rdata: d\r\rdata: f\r\r",
			[]Event{{Type: "e", Data: []byte("d")}, {Data: []byte("f")}, {}}, io.EOF},
		"mixed line ends": {"event: e\r\nid: 1\ndata: d\rdata: f\n\n",
			[]Event{{Type: "e", ID: "1", Data: []byte("d\nf")}, {}}, io.EOF},
		"CR, several":      {"data: a\rdata: b\r\r", []Event{{Data: []byte("a\nb")}, {}}, io.EOF},
		"no space":         {"data:d\n\n", []Event{{Data: []byte("d")}, {}}, io.EOF},
		"one space only":   {"data:  d\n\n", []Event{{Data: []byte(" d")}, {}}, io.EOF},
		"no colon":         {"data\n\n", []Event{{}, {}}, io.EOF},
		"several lines":    {"data: a\ndata: b\ndata: c\n\n", []Event{{Data: []byte("a\nb\nc")}, {}}, io.EOF},
		"comment":          {": hello\nretry: 5\nother: x\n\n", []Event{{}, {}}, io.EOF},
		"two events":       {"data: a\n\n\ndata: b\n\n", []Event{{Data: []byte("a")}, {}, {Data: []byte("b")}, {}}, io.EOF},
		"unfinished":       {"data: a\n\nid: 2\ndata: b", []Event{{Data: []byte("a")}, {ID: "2", Data: []byte("b")}}, io.EOF},
		"one long line":    {strings.Repeat("x", 200), []Event{{}}, ErrTooLong},
		"many short lines": {strings.Repeat("id: 7\n", 20), []Event{{ID: "7"}}, ErrTooLong},
		"within the limit": {long + "\n", []Event{{Data: []byte(strings.Repeat("x", 60))}, {}}, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			r, whole := NewReader(iotest.OneByteReader(strings.NewReader(tc.stream)), 100), ""
			for i, want := range tc.want {
				got, err := r.Next()
				whole += string(got.Raw)
				if got.Type != want.Type || got.ID != want.ID || !bytes.Equal(got.Data, want.Data) ||
					(got.Data == nil) != (want.Data == nil) {
					t.Errorf("event %d is %+v, want %+v", i, got, want)
				}
				if last := i == len(tc.want)-1; last && err != tc.end || !last && err != nil {
					t.Errorf("event %d comes with %v", i, err)
				}
			}
			if tc.end == io.EOF && whole != tc.stream {
				t.Errorf("read %q", whole)
			}
		})
	}
}

func TestNextPassesErrorsOn(t *testing.T) {
	broken := errors.New("the connection broke")
	r := NewReader(io.MultiReader(strings.NewReader("data: a"), iotest.ErrReader(broken)), 100)
	if e, err := r.Next(); err != broken || string(e.Data) != "a" {
		t.Errorf("%+v, %v", e, err)
	}
}

// FuzzNext reads any stream: no byte is lost, no event is longer than allowed, and
// what was read is read again from what AppendTo writes of it.
func FuzzNext(f *testing.F) {
	f.Add([]byte("event: e\nid: 1\ndata: d\n\n"), 64)
	f.Add([]byte("data: a\r\ndata\r\n\r\r\n: x\n\ndata:"), 16)
	f.Add(bytes.Repeat([]byte("data: xxxxxxxxxxxxxxxxxxxxxxxx\n"), 9), 40)
	f.Fuzz(func(t *testing.T, stream []byte, limit int) {
		limit = 1 + max(limit, 0)%(1<<12)
		buffer := NewReader(nil, limit).from.Size()
		var whole []byte
		for r := NewReader(bytes.NewReader(stream), limit); ; {
			e, err := r.Next()
			whole = append(whole, e.Raw...)
			if len(e.Raw) > limit+buffer || len(e.Raw) > limit && err != ErrTooLong {
				t.Fatalf("an event has %d bytes, at most %d are allowed: %v", len(e.Raw), limit, err)
			}
			text := e.AppendTo(nil)
			again, againErr := NewReader(bytes.NewReader(text), len(text)).Next()
			if againErr != nil || again.ID != oneLine.Replace(e.ID) || again.Type != oneLine.Replace(e.Type) ||
				!bytes.Equal(again.Data, e.Data) {
				t.Fatalf("%+v was written as %q and read as %+v, %v", e, text, again, againErr)
			}
			if err == io.EOF {
				break
			}
			if err != nil && err != ErrTooLong {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(whole, stream) {
			t.Fatalf("%q was read as %q", stream, whole)
		}
	})
}

// An event is read when its empty line has come. What comes after that may come much
// later, or be the rest of a line end.
func TestNextDoesNotWaitForTheNextEvent(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []string // each is read at once, and then nothing more
		want   string
	}{
		"LF":                            {[]string{"data: a\n\n"}, "data: a\n\n"},
		"CR":                            {[]string{"data: a\r\r"}, "data: a\r\r"},
		"CR, byte by byte":              {strings.Split("data: a\r\r", ""), "data: a\r\r"},
		"CRLF":                          {[]string{"data: a\r\n\r\n"}, "data: a\r\n\r\n"},
		"CRLF, byte by byte":            {strings.Split("data: a\r\n\r\n", ""), "data: a\r\n\r\n"},
		"CRLF, cut within the last one": {[]string{"data: a\r\n\r", "\n"}, "data: a\r\n\r\n"},
	} {
		in, out := io.Pipe()
		go func() {
			for _, piece := range c.pieces {
				_, _ = io.WriteString(out, piece)
			}
		}()
		// If the Reader wanted more than the pieces, the test would not end.
		if e, err := NewReader(in, 100).Next(); err != nil || string(e.Raw) != c.want || string(e.Data) != "a" {
			t.Errorf("%s: %q, %v", name, e.Raw, err)
		}
		in.Close()
	}
}
