package console

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// The long texts of a task, each on a page of its own: what its runs printed and
// changed, its input, its output and its reports.
const (
	tailBytes = 6 << 10  // of a log on the page of its task
	logBytes  = 48 << 10 // of a page of a log
	textBytes = 96 << 10 // of a page of another long text
	rawBytes  = 1 << 20
	pastEnd   = 1 << 52 // an offset after the end of every log
)

// logStreams are what a run prints to.
var logStreams = []string{"stdout", "stderr"}

// logTail is the end of what a run printed.
type logTail struct {
	Stream string
	Text   string
	Path   string // of the whole
	Raw    string // where the script reads on
	Next   int64
	Cut    bool // there is more before it
	Open   bool // more may come
}

func (t *taskView) loadLogs(v *request) error {
	if t.Run == nil {
		return nil
	}
	for _, stream := range logStreams {
		tail, err := v.readLogTail(t.TaskID, t.Run.RunID, stream, tailBytes)
		if err != nil {
			return err
		}
		t.Logs = append(t.Logs, tail)
	}
	return nil
}

// readLogTail asks where a log ends, then for its end. What comes between the two is
// left to the script.
func (v *request) readLogTail(taskID, runID, stream string, size int64) (logTail, error) {
	end, err := v.backend.Tasks.Log(v.ctx(), taskID, runID, stream, pastEnd, 1)
	if err != nil {
		return logTail{}, err
	}
	c, err := v.backend.Tasks.Log(v.ctx(), taskID, runID, stream, max(end.Next-size, 0), int(size))
	path := taskPath(taskID)
	return logTail{
		Stream: stream,
		Text:   terminalText(dropPartialLine(c)),
		Next:   c.Next,
		Cut:    c.Offset > 0,
		Open:   c.State != picket.LogClosed,
		Path:   queryPath(path+"/log", "run", runID, "stream", stream),
		Raw:    queryPath(path+"/log/raw", "run", runID, "stream", stream),
	}, err
}

// dropPartialLine leaves out the rest of a line that the piece begins within.
func dropPartialLine(c picket.LogChunk) []byte {
	if _, rest, ok := bytes.Cut(c.Data, []byte("\n")); ok && c.MidLine {
		return rest
	}
	return c.Data
}

// textView is a page of a long text.
type textView struct {
	TaskID  string
	Heading string
	Tabs    []tab
	Text    string
	Diff    []diffLine
	Reports []picket.Report
	Size    int64
	Empty   string // what is said where there is nothing
	Before  string
	After   string
	Raw     string
	From    int64
	To      int64 // which bytes of a log these are
}

func textPage(t textView) (page, error) { return page{name: "text", title: t.Heading, body: t}, nil }

// showLog shows a log piece by piece, the last one first.
func showLog(v *request) (page, error) {
	id, run, stream := v.Param("id"), v.parameter("run"), v.parameter("stream")
	if !slices.Contains(logStreams, stream) {
		stream = logStreams[0]
	}
	end, err := v.backend.Tasks.Log(v.ctx(), id, run, stream, pastEnd, 1)
	if err != nil {
		return page{}, err
	}
	from := max(end.Next-logBytes, 0)
	if v.QueryParam("offset") != "" {
		from = min(v.position("offset"), end.Next)
	}
	c, err := v.backend.Tasks.Log(v.ctx(), id, end.RunID, stream, from, logBytes)
	if err != nil {
		return page{}, err
	}
	at := func(offset int64) string {
		return queryPath(taskPath(id)+"/log", "run", c.RunID, "stream", stream, "offset",
			strconv.FormatInt(max(offset, 0), 10))
	}
	t := textView{
		TaskID:  id,
		Heading: "Log of " + shortID(c.RunID),
		Text:    terminalText(c.Data),
		Size:    end.Next,
		From:    c.Offset,
		To:      c.Next,
		Empty:   "Nothing was printed here.",
		Raw:     queryPath(taskPath(id)+"/log/raw", "run", c.RunID, "stream", stream, "save", "1"),
	}
	if c.RunID == "" {
		t.Heading, t.Empty, t.Raw = "Log", "The task has not run yet.", ""
	}
	if from > 0 && c.Offset >= from { // else the part before is not kept any more
		t.Before = at(from - logBytes)
	}
	if c.Next < end.Next {
		t.After = at(c.Next)
	}
	for _, s := range logStreams {
		t.Tabs = append(t.Tabs, tab{
			Label:   s,
			Path:    queryPath(taskPath(id)+"/log", "run", c.RunID, "stream", s),
			Current: s == stream,
		})
	}
	return textPage(t)
}

// showRawLog is what a run printed, byte for byte, as the API answers it: for the
// script, which reads on from an offset, and to be saved.
func showRawLog(v *request) error {
	stream := v.parameter("stream")
	if stream == "" {
		stream = logStreams[0]
	}
	c, err := v.backend.Tasks.Log(v.ctx(), v.Param("id"), v.parameter("run"), stream, v.position("offset"), rawBytes)
	if err != nil {
		return err
	}
	h := v.Response().Header()
	h.Set("X-Picket-Next", strconv.FormatInt(c.Next, 10))
	h.Set("X-Picket-Log", string(c.State))
	if v.QueryParam("save") != "" {
		h.Set(echo.HeaderContentDisposition, `attachment; filename="`+c.RunID+"-"+c.Stream+`.log"`)
	}
	return v.Blob(http.StatusOK, "text/plain; charset=utf-8", c.Data)
}

func showReports(v *request) (page, error) {
	all, err := v.backend.Tasks.Reports(v.ctx(), v.Param("id"))
	if err != nil {
		return page{}, err
	}
	slices.Reverse(all)
	t := textView{TaskID: v.Param("id"), Heading: "Reports", Empty: "No run has reported yet.", Size: int64(len(all))}
	from := int(min(v.position("from"), int64(len(all))))
	t.Reports = all[from:min(from+maxReports, len(all))]
	if next := from + maxReports; next < len(all) {
		t.After = queryPath(taskPath(t.TaskID)+"/reports", "from", strconv.Itoa(next))
	}
	return textPage(t)
}

// diffPageLines is how many lines of a diff are on a page, of up to diffPageBytes.
const diffPageLines, diffPageBytes = 2000, 48 << 10

// firstLines is the first n lines of a text.
func firstLines(text string, n int) string {
	for i := range len(text) {
		if text[i] != '\n' {
			continue
		}
		if n--; n == 0 {
			return text[:i+1]
		}
	}
	return text
}

// runeStart is an offset into a text, moved to where a character begins.
func runeStart(text string, offset int64) int {
	at := int(min(offset, int64(len(text))))
	for at > 0 && at < len(text) && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}

// showDiff shows a diff, of which the engine keeps 256 KiB.
func showDiff(v *request) (page, error) {
	all, err := v.backend.Tasks.Evidence(v.ctx(), v.Param("id"), v.parameter("run"))
	if err != nil {
		return page{}, err
	}
	t := textView{TaskID: v.Param("id"), Heading: "Changes", Empty: "No run has handed in changes."}
	if len(all) > 0 {
		t.Heading, t.Size = "Changes of "+shortID(all[0].RunID), int64(len(all[0].Diff))
		whole := text.Printable(all[0].Diff)
		from := runeStart(whole, v.position("offset"))
		part := firstLines(newExcerpt(whole[from:], diffPageBytes).Text, diffPageLines)
		t.Diff = diffLines(part)
		if next := from + len(part); next < len(whole) {
			t.After = queryPath(taskPath(t.TaskID)+"/diff", "run", all[0].RunID, "offset", strconv.Itoa(next))
		}
	}
	return textPage(t)
}

func showInput(v *request) (page, error) {
	return v.payloadPage("Input", "The task has no input.", func(t picket.Task) picket.RawJSON { return t.Input })
}

func showOutput(v *request) (page, error) {
	return v.payloadPage("Output", "The task has no output yet.",
		func(t picket.Task) picket.RawJSON { return t.Output })
}

// payloadPage shows a text of up to 256 KiB in pieces.
func (v *request) payloadPage(heading, empty string, of func(picket.Task) picket.RawJSON) (page, error) {
	task, err := v.backend.Tasks.Task(v.ctx(), v.Param("id"))
	if err != nil {
		return page{}, err
	}
	whole := indentJSON(of(task))
	t := textView{TaskID: task.TaskID, Heading: heading, Empty: empty, Size: int64(len(whole))}
	from := runeStart(whole, v.position("offset"))
	part := newExcerpt(whole[from:], textBytes)
	t.Text, t.From, t.To = part.Text, int64(from), int64(from+len(part.Text))
	if part.More {
		t.After = queryPath(v.Request().URL.Path, "offset", strconv.Itoa(from+len(part.Text)))
	}
	return textPage(t)
}
