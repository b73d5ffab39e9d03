package process

import (
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The shim is started with shimVariable in its environment and these files. Its commands come
// through the first. Nothing of it is on the command line, where every user could read it.
const (
	shimVariable = "PICKET_SHIM" // its value is the protocol's version
	shimVersion  = "5"

	fdControl = 3 // from the adapter: one shimJob, then shimOrders; its end is the adapter's end
	fdStatus  = 4 // to the adapter: shimWords
	fdStdout  = 5 // of the agent
	fdStderr  = 6
	fdExec    = 7 // a socket from the adapter: shimExecs, each with the three files of a program
)

// shimJob is what the shim starts. Texts of the operating system are bytes:
// they need not be UTF-8.
type shimJob struct {
	Path        []byte         `json:"path"`
	Args        [][]byte       `json:"args"`
	Env         [][]byte       `json:"env"`
	Dir         []byte         `json:"dir"`
	DirFD       int            `json:"dirFd"`    // of Dir, held open; 0: Dir is found by its path
	StdinFD     int            `json:"stdinFd"`  // what the agent reads; 0: nothing
	StateDir    []byte         `json:"stateDir"` // of the process record; empty: none
	RunID       string         `json:"runId"`
	Containment string         `json:"containment"`
	Forced      bool           `json:"forced"` // fail rather than use another level
	CgroupIn    string         `json:"cgroupIn"`
	KillAt      int64          `json:"killAt"`  // ns on the boot clock, 0 is never
	Ceiling     treeLimits     `json:"ceiling"` // of the whole tree
	Controls    controllerDirs `json:"controls"`
}

// startDir is where the agent and the programs beside it start. A link in /proc
// leads to the directory itself, whatever its path leads to now.
func (j *shimJob) startDir() string {
	if j.DirFD != 0 {
		return "/proc/self/fd/" + strconv.Itoa(j.DirFD)
	}
	return string(j.Dir)
}

// openStdin is what the agent reads.
func (j *shimJob) openStdin() (*os.File, error) {
	if j.StdinFD != 0 {
		return os.NewFile(uintptr(j.StdinFD), "stdin"), nil
	}
	return os.Open(os.DevNull)
}

// shimCommand is told to a running shim, which acknowledges it by its number.
type shimCommand struct {
	Seq    uint64         `json:"seq"`
	KillAt int64          `json:"killAt,omitzero"` // a new deadline
	Signal syscall.Signal `json:"signal,omitzero"` // SIGTERM or SIGKILL for the tree
	// EndExec kills a program that was started beside the agent.
	EndExec string `json:"endExec,omitzero"`
}

// shimExecRequest asks for a program beside the agent.
type shimExecRequest struct {
	ID      string     `json:"id"`
	Path    []byte     `json:"path"`
	Args    [][]byte   `json:"args"`
	Timeout int64      `json:"timeout"` // ns
	Ceiling treeLimits `json:"ceiling"`

	files [3]int // standard input, output and error
}

// shimExecResult says what became of it.
type shimExecResult struct {
	ID     string       `json:"id"`
	Failed *shimFailure `json:"failed,omitzero"` // it was not started
	Code   int          `json:"code"`
	Signal string       `json:"signal"`
	Passed string       `json:"passed,omitzero"` // the limit for which it was killed
}

// shimMessage is what a shim tells: one field of it is set.
type shimMessage struct {
	Failed  *shimFailure `json:"failed,omitzero"`
	Started *Record      `json:"started,omitzero"`
	Ack     uint64       `json:"ack,omitzero"`
	Ended   *shimExit    `json:"ended,omitzero"` // the whole tree is gone, or killTimeout over
	// ExecEnded says that a program beside the agent has ended, with all it
	// started, or was not started.
	ExecEnded *shimExecResult `json:"execEnded,omitzero"`
}

// shimFailure says why the agent could not be started.
type shimFailure struct {
	Text  string        `json:"text"`
	Errno syscall.Errno `json:"errno"` // 0 if it was not a signal
}

func (f *shimFailure) Error() string { return f.Text }

func (f *shimFailure) Unwrap() error {
	if f.Errno == 0 {
		return nil
	}
	return f.Errno
}

// shimExit is the leader's end.
type shimExit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal"`
	// Overdue says that the shim killed the tree because its deadline passed.
	Overdue bool `json:"overdue"`
	// Left are processes that do not die though they were killed.
	Left []int `json:"left"`
}

// sendMessage writes one message in one piece.
func sendMessage(w io.Writer, message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// receiveMessages sends every message of r to the channel, which it closes at the end,
// and stops early when quit is closed.
func receiveMessages[T any](r *jsontext.Decoder, quit <-chan struct{}) <-chan T {
	c := make(chan T)
	go func() {
		defer close(c)
		for {
			var message T
			if err := json.UnmarshalDecode(r, &message); err != nil {
				return
			}
			select {
			case c <- message:
			case <-quit:
				return
			}
		}
	}()
	return c
}

func bytesOf(texts []string) [][]byte {
	out := make([][]byte, len(texts))
	for i, s := range texts {
		out[i] = []byte(s)
	}
	return out
}

func textsOf(b [][]byte) []string {
	out := make([]string, len(b))
	for i := range b {
		out[i] = string(b[i])
	}
	return out
}
