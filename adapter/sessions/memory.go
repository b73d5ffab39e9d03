package sessions

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// Bounds of what is remembered about commands.
const (
	rememberFor = 24 * time.Hour
	remembered  = 1000 // the oldest of more are forgotten earlier, once they have ended
)

// commandID is what an id has to look like: it is the name of a file, too.
var commandID = lazyregexp.New(`^[A-Za-z0-9_-]{1,128}$`)

// memory knows the commands of the last day, in a directory with one file for each.
type memory struct {
	dir string
	log *slog.Logger

	mu       sync.Mutex
	commands map[string]*command
}

// commandRecord is what the file of a command says.
type commandRecord struct {
	CommandID string             `json:"commandId"`
	Command   string             `json:"command"`
	SessionID string             `json:"sessionId"`
	State     picket.PromptState `json:"state"`
	Reason    string             `json:"reason,omitempty"`
	Answer    string             `json:"answer,omitempty"`
	Delivered bool               `json:"delivered"` // the server has the result
	At        time.Time          `json:"at"`        // when the command came
}

// openMemory reads the commands of an earlier keeper. A prompt that it had begun has failed.
func openMemory(dir string, log *slog.Logger) *memory {
	m := &memory{dir: dir, log: log, commands: map[string]*command{}}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the commands of agent sessions cannot be read", "err", err)
	}
	for _, e := range entries {
		id := strings.TrimSuffix(e.Name(), ".json")
		var r commandRecord
		err := files.ReadJSON(filepath.Join(dir, e.Name()), &r)
		if err != nil || r.CommandID != id || !commandID().MatchString(id) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
			continue
		}
		c := newCommand(m, r)
		m.commands[id] = c
		if !r.State.Ended() {
			c.end(picket.PromptFailed, "keeper_restarted")
		}
	}
	m.prune(time.Now())
	return m
}

// find is a command that came before; nil: it is new.
func (m *memory) find(id string) *command {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.commands[id]
}

// add remembers a command from now on.
func (m *memory) add(from picket.SessionCommand) *command {
	m.prune(time.Now())
	c := newCommand(m, commandRecord{
		CommandID: from.CommandID,
		Command:   from.Command,
		SessionID: from.SessionID,
		State:     picket.PromptQueued,
		At:        time.Now().UTC(),
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands[from.CommandID] = c
	return c
}

// undelivered are the commands whose results the server does not have.
func (m *memory) undelivered() (all []*command) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.commands {
		if !c.isDelivered() {
			all = append(all, c)
		}
	}
	return all
}

// prune forgets old commands that are neither under way nor on their way to the server.
func (m *memory) prune(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var over []*command
	for _, c := range m.commands {
		if c.isOver() {
			over = append(over, c)
		}
	}
	slices.SortFunc(over, func(a, b *command) int { return a.record.At.Compare(b.record.At) })
	for i, c := range over {
		if now.Sub(c.record.At) < rememberFor && len(over)-i < remembered {
			break
		}
		delete(m.commands, c.record.CommandID)
		if err := os.Remove(m.file(c.record.CommandID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.log.Warn("an old command of an agent session cannot be deleted", "command", c.record.CommandID, "err", err)
		}
	}
}

func (m *memory) file(id string) string { return filepath.Join(m.dir, id+".json") }

// save writes the file of a command, and returns when it is on the disk.
func (m *memory) save(r commandRecord) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return files.WritePrivate(m.file(r.CommandID), content)
}
