package rig

import (
	"bufio"
	"io"
	"slices"
	"strings"
	"testing"
)

// Values of both protocol versions end where they end, byte for byte.
func TestReadValue(t *testing.T) {
	values := []string{
		"+OK\r\n", "-ERR no\r\n", ":12\r\n", "$-1\r\n", "$0\r\n\r\n", "$5\r\na\r\nbc\r\n", "*-1\r\n", "*0\r\n",
		"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(123\r\n", "!5\r\nERR x\r\n",
		"=7\r\ntxt:abc\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n+c\r\n", "~1\r\n+a\r\n", ">2\r\n+message\r\n$2\r\nhi\r\n",
		"|1\r\n+ttl\r\n:1\r\n+OK\r\n",
	}
	in := bufio.NewReaderSize(strings.NewReader(strings.Join(values, "")), 16)
	for _, want := range values {
		got, err := readValue(in, nil)
		if err != nil || string(got) != want {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	}
	if _, err := readValue(in, nil); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	for _, bad := range []string{"*x\r\n", "$5\r\nab", "*2\r\n+a\r\n", "$", "$\n"} {
		if got, err := readValue(bufio.NewReader(strings.NewReader(bad)), nil); err == nil {
			t.Errorf("%q was read as %q", bad, got)
		}
	}
}

func TestReadCommand(t *testing.T) {
	in := bufio.NewReader(strings.NewReader("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\r\n\r\n\r\nPING now\r\n*1\r\n$4\r\nQUIT\r\n"))
	for _, want := range [][]string{{"SET", "a", "\r\n\r\n"}, {"PING", "now"}, {"QUIT"}} {
		if got, _, err := readCommand(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	}
	if _, _, err := readCommand(bufio.NewReader(strings.NewReader("*1\r\n:1\r\n"))); err == nil {
		t.Error("a number was read as a word")
	}
}
