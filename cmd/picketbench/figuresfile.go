package main

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// maxLine bounds one line of figures, in bytes.
const maxLine = 1 << 20

// readFigures reads a file of JSON lines.
func readFigures(path string) ([]line, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open figures (make bench makes them): %w", err)
	}
	defer f.Close()
	var lines []line
	in := bufio.NewScanner(f)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		var l line
		dec := stdjson.NewDecoder(bytes.NewReader(in.Bytes()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&l); err != nil {
			return nil, fmt.Errorf("read figures: %w", err)
		}
		lines = append(lines, l)
	}
	return lines, in.Err()
}

// replaceFigures puts the lines of one scenario into a file in the place of
// those it held of it; the other scenarios stay.
func replaceFigures(path, name string, fresh []line) error {
	lines, err := readFigures(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines = slices.DeleteFunc(lines, func(l line) bool { return l.Scenario == name })
	lines = append(lines, fresh...)
	all := scenarios()
	rank := func(l line) int {
		return slices.IndexFunc(all, func(s scenario) bool { return s.name == l.Scenario })
	}
	slices.SortStableFunc(lines, func(a, b line) int { return rank(a) - rank(b) })
	var out bytes.Buffer
	if err := writeLines(stdjson.NewEncoder(&out), lines); err != nil {
		return err
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}

func writeLines(enc *stdjson.Encoder, lines []line) error {
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}
