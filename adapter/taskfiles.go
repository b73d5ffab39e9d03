package adapter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/files"
)

// TaskFile is what PICKET_TASK_FILE holds: the task as the agent needs it. It
// contains no credential.
type TaskFile struct {
	TaskID       string `json:"taskId"`
	RunID        string `json:"runId"`
	FencingToken int64  `json:"fencingToken"` // of the lease, for X-Fencing-Token
	Attempt      int    `json:"attempt"`      // counts runs from 1
	picket.LeaseTask
	Answers      []picket.Answer         `json:"answers"`      // of people, oldest first
	PreviousExit *picket.Exit            `json:"previousExit"` // null in the first run
	Workspace    workspace.TaskWorkspace `json:"workspace"`
	// Instructions are the standing ones of the operators, at most 16 KiB. Empty: there are none.
	Instructions string `json:"instructions,omitempty"`
}

// NudgeFile is what nudge.json beside the task file holds, once the agent was
// nudged: why it seems to be stuck.
type NudgeFile struct {
	Cause  string         `json:"cause"` // picket.NudgeSilent or picket.NudgeLoop
	Reason string         `json:"reason"`
	At     picket.Instant `json:"at"`
}

// The files an agent reads.
const (
	taskFile       = "task.json"
	lastReportFile = "last-report.json"
	budgetFile     = "budget.json" // the envelope of the task, as it was granted
	nudgeFile      = "nudge.json"
	messagesFile   = "messages.json"
)

// taskFileContents returns what the agent finds when it starts, by the name of the file.
func taskFileContents(lease picket.Lease, told workspace.TaskWorkspace) map[string]any {
	return map[string]any{
		taskFile: TaskFile{
			TaskID: lease.TaskID, RunID: lease.RunID, FencingToken: lease.FencingToken, Attempt: lease.Attempt,
			LeaseTask: lease.Task, Answers: lease.Answers, PreviousExit: lease.PreviousExit, Workspace: told,
			Instructions: lease.Instructions,
		},
		lastReportFile: lease.LastReport,
		budgetFile:     lease.BudgetEnvelope,
	}
}

// leaseEnv returns the variables that carry the lease to the agent. files is the
// directory of the files that it reads.
func leaseEnv(lease picket.Lease, workspace, files, proxyURL string) []string {
	env := []string{
		"PICKET_TASK_ID=" + lease.TaskID,
		"PICKET_RUN_ID=" + lease.RunID,
		"PICKET_FENCING_TOKEN=" + strconv.FormatInt(lease.FencingToken, 10),
		"PICKET_LEASE_TOKEN=" + lease.AgentCredential().Reveal(),
		"PICKET_LEASE_EXPIRES_AT=" + lease.LeaseExpiresAt.String(),
		"PICKET_BUDGET_TOKENS=" + strconv.FormatInt(lease.BudgetEnvelope.Tokens, 10),
		"PICKET_BUDGET_USD=" + lease.BudgetEnvelope.USD.String(),
		"PICKET_WORKSPACE=" + workspace,
		"PICKET_PROXY_URL=" + proxyURL,
		"PICKET_TASK_FILE=" + filepath.Join(files, taskFile),
		"PICKET_LAST_REPORT=" + filepath.Join(files, lastReportFile),
	}
	if lease.MCPURL != "" {
		env = append(env, "PICKET_MCP_URL="+lease.MCPURL)
	}
	if trace := lease.Task.Trace; trace != nil {
		env = append(env, "TRACEPARENT="+trace.Parent)
		if trace.State != "" {
			env = append(env, "TRACESTATE="+trace.State)
		}
	}
	return env
}

// writeAgentFiles writes the files into .picket of at, a directory in top, and
// answers where they are. An agent of an earlier run may have put anything
// there: nothing outside of top is written.
func writeAgentFiles(k *workspace.Locked, at string, files map[string]any) (string, error) {
	r, err := openWorkspaceDir(k, at)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", workspace.AgentFilesDir, err)
	}
	defer r.Close()
	if info, err := r.Lstat(workspace.AgentFilesDir); err == nil && !info.IsDir() {
		if err := r.Remove(workspace.AgentFilesDir); err != nil {
			return "", fmt.Errorf("write %s: %w", workspace.AgentFilesDir, err)
		}
	}
	if err := r.Mkdir(workspace.AgentFilesDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("write %s: %w", workspace.AgentFilesDir, err)
	}
	for name, v := range files {
		if err := writeJSONIn(r, filepath.Join(workspace.AgentFilesDir, name), v); err != nil {
			return "", fmt.Errorf("write %s: %w", workspace.AgentFilesDir, err)
		}
	}
	return filepath.Join(at, workspace.AgentFilesDir), nil
}

// replaceAgentFile replaces one file in .picket while the agent runs.
func replaceAgentFile(k *workspace.Locked, at, name string, v any) error {
	r, err := openWorkspaceDir(k, at)
	if err != nil {
		return err
	}
	defer r.Close()
	file := filepath.Join(workspace.AgentFilesDir, name)
	if err := writeJSONIn(r, file+".new", v); err != nil {
		return err
	}
	return r.Rename(file+".new", file)
}

// openWorkspaceDir opens a directory in top, and makes it if it is not there.
func openWorkspaceDir(k *workspace.Locked, at string) (*os.Root, error) {
	top := k.Path
	r, err := k.OpenRoot()
	if err != nil || at == top {
		return r, err
	}
	defer r.Close()
	below, err := filepath.Rel(top, at)
	if err != nil {
		return nil, err
	}
	if err := r.MkdirAll(below, 0o700); err != nil {
		return nil, err
	}
	return r.OpenRoot(below)
}

// writeJSONIn replaces a file, whatever was there.
func writeJSONIn(r *os.Root, name string, v any) error {
	text, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	return files.CreateIn(r, name, append(text, '\n'))
}

// MessageFile is what messages.json beside the task file holds, once messages have come: those that
// waited for the agent when it was written. The tool read_messages acknowledges them.
type MessageFile struct {
	Messages []picket.Message `json:"messages"` // oldest first, at most picket.MaxMessagesRead
	Unread   int              `json:"unread"`   // how many waited in all
	At       picket.Instant   `json:"at"`       // when this was
	// History is the last messages from and to the task, also those that were read.
	History []picket.Message `json:"history"`
}

// messageFile keeps messages.json of a run up to date. The store tells by renewals and watches
// that messages wait; the same message may be told several times.
type messageFile struct {
	*runScope
	write  func(file string, v any) error
	newest atomic.Int64  // number of the last message that the store has named
	told   chan struct{} // of capacity 1
}

func newMessageFile(scope *runScope, write func(file string, v any) error) *messageFile {
	return &messageFile{runScope: scope, write: write, told: make(chan struct{}, 1)}
}

// tell notes that messages wait, of which the last has a number. It never blocks.
func (f *messageFile) tell(newest int64) {
	f.newest.Store(newest)
	select {
	case f.told <- struct{}{}:
	default:
	}
}

// start writes the file as long as the lease is held: at once if the task has messages, and again
// when new ones have come.
func (f *messageFile) start(held context.Context, group *sync.WaitGroup) {
	history := f.lease.Messages > 0
	group.Go(func() {
		written := int64(-1)
		if history {
			written = f.fetch(held, written)
		}
		for {
			select {
			case <-f.told:
			case <-held.Done():
				return
			}
			if f.newest.Load() != written {
				written = f.fetch(held, written)
			}
		}
	})
}

// fetch writes what waits now. It returns the number of the last message, or before if nothing was
// written; then the next renewal leads to another try.
func (f *messageFile) fetch(ctx context.Context, before int64) int64 {
	var waiting picket.MessagesWaiting
	err := patiently(ctx, func(ctx context.Context) (err error) {
		waiting, err = f.proxy.MessagesWaiting(ctx)
		return err
	})
	if err == nil {
		err = f.write(messagesFile, MessageFile{Messages: waiting.Messages, Unread: waiting.Unread,
			At: picket.InstantOf(time.Now()), History: waiting.History})
	}
	if err != nil {
		if ctx.Err() == nil {
			f.log.Warn("the messages cannot be passed on", "err", err)
		}
		return before
	}
	if waiting.Unread > 0 {
		f.log.Info("messages wait for the agent", "unread", waiting.Unread)
		f.emit(Event{Kind: EventMessages, Unread: waiting.Unread})
	}
	return waiting.Newest
}

// MessagesWaiting reads what waits for the agent of the run. It acknowledges nothing.
func (p *Proxy) MessagesWaiting(ctx context.Context) (w picket.MessagesWaiting, err error) {
	err = p.call(ctx, p.client, http.MethodGet, "/v1/run/messages", nil, &w)
	return w, err
}
