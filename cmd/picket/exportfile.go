package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// open opens the file; one that is gone on with is cut after its last whole
// line.
func (x *export) open() error {
	goesOn, _ := x.cmd.Flags().GetBool("continue")
	if x.path == "-" {
		if goesOn {
			return usage("--continue needs a file")
		}
		x.out = bufio.NewWriter(x.cmd.OutOrStdout())
		return x.heading()
	}
	how := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if goesOn {
		how = os.O_RDWR | os.O_CREATE
	}
	var err error
	if x.file, err = os.OpenFile(x.path, how, 0o600); errors.Is(err, os.ErrExist) {
		e := usage("%s is there already", x.path)
		e.Remedy = "Go on with it: picket events export --continue " + quoted(x.path) + "; or name another file."
		return e
	}
	if err != nil {
		return usage("%v", err)
	}
	x.out = bufio.NewWriter(x.file)
	if goesOn {
		return x.goOn()
	}
	return x.heading()
}

// goOn finds the last whole line of the file.
func (x *export) goOn() error {
	lines := bufio.NewReader(x.file)
	whole, last := int64(0), ""
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		whole, last = whole+int64(len(line)), line
	}
	if err := x.file.Truncate(whole); err != nil {
		return err
	}
	if _, err := x.file.Seek(whole, io.SeekStart); err != nil {
		return err
	}
	if whole == 0 {
		return x.heading()
	}
	return x.cursorOf(last)
}

// cursorOf reads the cursor of a line that an export wrote.
func (x *export) cursorOf(line string) error {
	text, _, _ := strings.Cut(line, ",")
	if x.format == "jsonl" {
		var e picket.Event
		if err := json.Unmarshal([]byte(line), &e); err == nil {
			text = e.ID
		}
	} else if strings.TrimSpace(line) == strings.Join(csvHead, ",") {
		return nil
	}
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq > x.last {
		e := usage("the last line of %s is no event of this log: %s", x.path, clip(line, 60))
		e.Remedy = "Name the file of an export of this server, with its -o, or a new file."
		return e
	}
	x.after = max(x.after, seq)
	return nil
}

func (x *export) line(e picket.Event, raw jsontext.Value) error {
	if x.format == "jsonl" {
		return printValue(x.out, "jsonl", raw)
	}
	fence := ""
	if e.FencingToken != 0 {
		fence = strconv.FormatInt(e.FencingToken, 10)
	}
	return x.row([]string{e.ID, e.At.String(), e.Type, e.TaskID, e.RunID, e.AgentID, fence, e.Actor, e.Reason,
		string(e.Data)})
}

var csvHead = []string{"id", "at", "type", "task", "run", "agent", "fence", "actor", "reason", "data"}

func (x *export) heading() error {
	if x.format != "csv" {
		return nil
	}
	return x.row(csvHead)
}

// row writes a line of a table. A text that a spreadsheet would take for a
// formula is set off by an apostrophe: agents write some of them.
func (x *export) row(cells []string) error {
	for i, cell := range cells {
		if text := oneLine(cell); text != "-" || cell == "-" {
			cell = text
		} else {
			cell = "" // a table for people has "-" there
		}
		if strings.ContainsAny(cell[:min(1, len(cell))], "=+-@") {
			cell = "'" + cell
		}
		cells[i] = cell
	}
	w := csv.NewWriter(x.out)
	_ = w.Write(cells)
	w.Flush()
	return w.Error()
}

func (x *export) close() error {
	err := x.out.Flush()
	if x.file != nil {
		err = errors.Join(err, x.file.Sync(), x.file.Close())
	}
	return err
}
