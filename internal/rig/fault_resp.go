package rig

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// readCommand reads one request: an array of bulk strings, or a line of words.
// raw are its bytes as they came.
func readCommand(r *bufio.Reader) (words []string, raw []byte, err error) {
	raw, err = readValue(r, nil)
	if err != nil || raw[0] != '*' {
		return strings.Fields(string(raw)), raw, err
	}
	rest := string(raw)
	next := func() string {
		line, after, _ := strings.Cut(rest, "\r\n")
		rest = after
		return line
	}
	n, err := size(next())
	for range n {
		length, err := size(next())
		if err != nil || length < 0 || length+2 > len(rest) {
			return nil, raw, fmt.Errorf("a request that is not an array of bulk strings: %q", raw)
		}
		words = append(words, rest[:length])
		rest = rest[length+2:]
	}
	return words, raw, err
}

// readValue appends the bytes of one whole RESP value, of version 2 or 3.
func readValue(r *bufio.Reader, raw []byte) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return raw, err
	}
	raw = append(raw, line...)
	parts := 0
	switch line[0] {
	case '$', '=', '!':
		n, err := size(string(line))
		if err != nil || n < 0 {
			return raw, err
		}
		body := make([]byte, n+2)
		_, err = io.ReadFull(r, body)
		return append(raw, body...), err
	case '*', '~', '>':
		parts, err = size(string(line))
	case '%':
		parts, err = size(string(line))
		parts *= 2
	case '|': // an attribute, and the value it belongs to
		parts, err = size(string(line))
		parts = 2*parts + 1
	}
	for range parts {
		if err != nil {
			break
		}
		raw, err = readValue(r, raw)
	}
	return raw, err
}

// size reads the number after the mark that a value starts with.
func size(line string) (int, error) {
	if len(line) < 2 {
		return 0, fmt.Errorf("no size in %q", line)
	}
	return strconv.Atoi(strings.TrimRight(line[1:], "\r\n"))
}
