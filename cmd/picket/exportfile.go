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
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// openFile opens the file; one that is gone on with is cut after its last whole
// line.
func (x *eventExport) openFile() error {
	goesOn, _ := x.cmd.Flags().GetBool("continue")
	if x.path == "-" {
		if goesOn {
			return exit.Usagef("--continue needs a file")
		}
		x.out = bufio.NewWriter(x.cmd.OutOrStdout())
		return x.writeHeader()
	}
	how := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if goesOn {
		how = os.O_RDWR | os.O_CREATE
	}
	var err error
	if x.file, err = os.OpenFile(x.path, how, 0o600); errors.Is(err, os.ErrExist) {
		e := exit.Usagef("%s is there already", x.path)
		e.Remedy = "Go on with it: picket events export --continue " + term.ShellQuote(x.path) +
			"; or name another file."
		return e
	}
	if err != nil {
		return exit.Usagef("%v", err)
	}
	x.out = bufio.NewWriter(x.file)
	if goesOn {
		return x.resumeFile()
	}
	return x.writeHeader()
}

// resumeFile finds the last whole line of the file.
func (x *eventExport) resumeFile() error {
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
		return x.writeHeader()
	}
	return x.cursorOf(last)
}

// cursorOf reads the cursor of a line that an export wrote.
func (x *eventExport) cursorOf(line string) error {
	text, _, _ := strings.Cut(line, ",")
	if x.format == "jsonl" {
		var e picket.Event
		if err := json.Unmarshal([]byte(line), &e); err == nil {
			text = e.ID
		}
	} else if strings.TrimSpace(line) == strings.Join(csvHeader, ",") {
		return nil
	}
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq > x.last {
		e := exit.Usagef("the last line of %s is no event of this log: %s", x.path, term.Clip(line, 60))
		e.Remedy = "Name the file of an export of this server, with its -o, or a new file."
		return e
	}
	x.after = max(x.after, seq)
	return nil
}

func (x *eventExport) writeEvent(e picket.Event, raw jsontext.Value) error {
	if x.format == "jsonl" {
		return term.PrintValue(x.out, "jsonl", raw)
	}
	fence := ""
	if e.FencingToken != 0 {
		fence = strconv.FormatInt(e.FencingToken, 10)
	}
	return x.writeCSVRow([]string{e.ID, e.At.String(), e.Type, e.TaskID, e.RunID, e.AgentID, fence, e.Actor, e.Reason,
		string(e.Data)})
}

var csvHeader = []string{"id", "at", "type", "task", "run", "agent", "fence", "actor", "reason", "data"}

func (x *eventExport) writeHeader() error {
	if x.format != "csv" {
		return nil
	}
	return x.writeCSVRow(csvHeader)
}

// writeCSVRow writes a line of a table. A text that a spreadsheet would take for a
// formula is set off by an apostrophe: agents write some of them.
func (x *eventExport) writeCSVRow(cells []string) error {
	for i, cell := range cells {
		if text := term.OneLine(cell); text != "-" || cell == "-" {
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

func (x *eventExport) close() error {
	err := x.out.Flush()
	if x.file != nil {
		err = errors.Join(err, x.file.Sync(), x.file.Close())
	}
	return err
}
