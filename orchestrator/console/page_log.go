package console

import (
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// The long texts of a task: what its runs printed and changed, its input, its
// output and its reports, each on a page of its own.
func textPages() []route {
	read := []string{"GET /api/v1/tasks/:id"}
	logs := []string{"GET /api/v1/tasks/:id/logs"}
	return []route{
		{name: "task.log", method: get, path: tasksPath + "/:id/log", scopes: people, as: logs, handle: logPage},
		{name: "task.raw", method: get, path: tasksPath + "/:id/log/raw", scopes: people, as: logs, handle: rawLog},
		{
			name:   "task.reports",
			method: get,
			path:   tasksPath + "/:id/reports",
			scopes: people,
			as:     []string{"GET /api/v1/tasks/:id/reports"},
			handle: reportsPage,
		},
		{
			name:   "task.diff",
			method: get,
			path:   tasksPath + "/:id/diff",
			scopes: people,
			as:     []string{"GET /api/v1/tasks/:id/evidence"},
			handle: diffPage,
		},
		{name: "task.input", method: get, path: tasksPath + "/:id/input", scopes: people, as: read, handle: inputPage},
		{
			name:   "task.output",
			method: get,
			path:   tasksPath + "/:id/output",
			scopes: people,
			as:     read,
			handle: outputPage,
		},
	}
}

const (
	tailBytes = 6 << 10  // of a log on the page of its task
	logBytes  = 48 << 10 // of a page of a log
	textBytes = 96 << 10 // of a page of another long text
	rawBytes  = 1 << 20
	beyond    = 1 << 52 // an offset after the end of every log
)

// streams are what a run prints to.
var streams = []string{"stdout", "stderr"}

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

func (t *taskView) logs(v *visit) error {
	run := t.chosen(v)
	if run == nil {
		return nil
	}
	for _, stream := range streams {
		tail, err := v.tail(t.TaskID, run.RunID, stream)
		if err != nil {
			return err
		}
		t.Logs = append(t.Logs, tail)
	}
	return nil
}

// tail asks where a log ends, then for its end. What comes between the two is
// left to the script.
func (v *visit) tail(taskID, runID, stream string) (logTail, error) {
	end, err := v.desk.Log(v.ctx(), taskID, runID, stream, beyond, 1)
	if err != nil {
		return logTail{}, err
	}
	c, err := v.desk.Log(v.ctx(), taskID, runID, stream, max(end.Next-tailBytes, 0), tailBytes)
	path := taskPath(taskID)
	return logTail{
		Stream: stream,
		Text:   output(wholeLines(c)),
		Next:   c.Next,
		Cut:    c.Offset > 0,
		Open:   c.State != picket.LogClosed,
		Path:   address(path+"/log", "run", runID, "stream", stream),
		Raw:    address(path+"/log/raw", "run", runID, "stream", stream),
	}, err
}

// wholeLines leaves out the rest of a line that the piece begins within.
func wholeLines(c picket.LogChunk) []byte {
	if !c.MidLine {
		return c.Data
	}
	for i, b := range c.Data {
		if b == '\n' {
			return c.Data[i+1:]
		}
	}
	return c.Data
}

// textView is a page of a long text.
type textView struct {
	TaskID  string
	Path    string
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

func (v *visit) text(title string, t textView) error {
	t.Path = taskPath(t.TaskID)
	return v.show(http.StatusOK, page{name: "text", title: title, nav: "tasks", topics: nil, body: t})
}

// logPage shows a log piece by piece, the last one first.
func logPage(v *visit) error {
	id, run, stream := v.Param("id"), v.parameter("run"), v.parameter("stream")
	if !slices.Contains(streams, stream) {
		stream = streams[0]
	}
	if err := v.look(); err != nil {
		return err
	}
	end, err := v.desk.Log(v.ctx(), id, run, stream, beyond, 1)
	if err != nil {
		return err
	}
	from := max(end.Next-logBytes, 0)
	if v.QueryParam("offset") != "" {
		from = min(v.position("offset"), end.Next)
	}
	c, err := v.desk.Log(v.ctx(), id, end.RunID, stream, from, logBytes)
	if err != nil {
		return err
	}
	at := func(offset int64) string {
		return address(taskPath(id)+"/log", "run", c.RunID, "stream", stream, "offset",
			strconv.FormatInt(max(offset, 0), 10))
	}
	t := textView{
		TaskID:  id,
		Heading: "Log of " + shortID(c.RunID),
		Text:    output(c.Data),
		Size:    end.Next,
		From:    c.Offset,
		To:      c.Next,
		Empty:   "Nothing was printed here.",
		Raw:     address(taskPath(id)+"/log/raw", "run", c.RunID, "stream", stream, "save", "1"),
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
	for _, s := range streams {
		t.Tabs = append(t.Tabs, tab{
			Label:   s,
			Path:    address(taskPath(id)+"/log", "run", c.RunID, "stream", s),
			Current: s == stream,
		})
	}
	return v.text(t.Heading, t)
}

// rawLog is what a run printed, byte for byte, as the API answers it: for the
// script, which reads on from an offset, and to be saved.
func rawLog(v *visit) error {
	stream := v.parameter("stream")
	if stream == "" {
		stream = streams[0]
	}
	c, err := v.desk.Log(v.ctx(), v.Param("id"), v.parameter("run"), stream, v.position("offset"), rawBytes)
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

func reportsPage(v *visit) error {
	if err := v.look(); err != nil {
		return err
	}
	all, err := v.desk.Reports(v.ctx(), v.Param("id"))
	if err != nil {
		return err
	}
	slices.Reverse(all)
	t := textView{TaskID: v.Param("id"), Heading: "Reports", Empty: "No run has reported yet.", Size: int64(len(all))}
	from := int(min(v.position("from"), int64(len(all))))
	t.Reports = all[from:min(from+maxReports, len(all))]
	if next := from + maxReports; next < len(all) {
		t.After = address(taskPath(t.TaskID)+"/reports", "from", strconv.Itoa(next))
	}
	return v.text("Reports", t)
}

// diffPageLines is how many lines of a diff are on a page, of up to diffBytes.
const diffPageLines, diffBytes = 2000, 48 << 10

// beginning is the first n lines of a text.
func beginning(text string, n int) string {
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

// characterAt is an offset into a text, moved to where a character begins.
func characterAt(text string, offset int64) int {
	at := int(min(offset, int64(len(text))))
	for at > 0 && at < len(text) && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}

// diffPage shows a diff, of which the engine keeps 256 KiB.
func diffPage(v *visit) error {
	if err := v.look(); err != nil {
		return err
	}
	all, err := v.desk.Evidence(v.ctx(), v.Param("id"), v.parameter("run"))
	if err != nil {
		return err
	}
	t := textView{TaskID: v.Param("id"), Heading: "Changes", Empty: "No run has handed in changes."}
	if len(all) > 0 {
		t.Heading, t.Size = "Changes of "+shortID(all[0].RunID), int64(len(all[0].Diff))
		whole := plain(all[0].Diff)
		from := characterAt(whole, v.position("offset"))
		part := beginning(extractOf(whole[from:], diffBytes).Text, diffPageLines)
		t.Diff = diffLines(part)
		if next := from + len(part); next < len(whole) {
			t.After = address(taskPath(t.TaskID)+"/diff", "run", all[0].RunID, "offset", strconv.Itoa(next))
		}
	}
	return v.text(t.Heading, t)
}

func inputPage(v *visit) error {
	return v.payloadPage("Input", "The task has no input.", func(t picket.Task) picket.RawJSON { return t.Input })
}

func outputPage(v *visit) error {
	return v.payloadPage("Output", "The task has no output yet.",
		func(t picket.Task) picket.RawJSON { return t.Output })
}

// payloadPage shows a text of up to 256 KiB in pieces.
func (v *visit) payloadPage(heading, empty string, of func(picket.Task) picket.RawJSON) error {
	if err := v.look(); err != nil {
		return err
	}
	task, err := v.desk.Task(v.ctx(), v.Param("id"))
	if err != nil {
		return err
	}
	whole := pretty(of(task))
	t := textView{TaskID: task.TaskID, Heading: heading, Empty: empty, Size: int64(len(whole))}
	from := characterAt(whole, v.position("offset"))
	part := extractOf(whole[from:], textBytes)
	t.Text, t.From, t.To = part.Text, int64(from), int64(from+len(part.Text))
	if part.More {
		t.After = address(v.Request().URL.Path, "offset", strconv.Itoa(from+len(part.Text)))
	}
	return v.text(heading, t)
}
