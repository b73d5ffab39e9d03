package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/picket-dev/picket/internal/files"
)

// A process that owns its store can stop it so that the next start goes on under the
// same floor. It leaves a random stop mark in Redis, beside the witness, and as a ticket
// in the memory of the machine. The next start consumes all three. If one is missing or
// has another mark, the store is adopted as after any other restart.
//
// Redis and the witness are files. Both can be copied, and both can be put back from one
// copy, any number of times. A ticket cannot: it is in no copy of a disk, and of several
// processes that take it one succeeds.

// stoppedServer is what the namespace was adopted on after mark_stop: no server.
const stoppedServer = "stopped "

// CloseMarked is Close for a store whose server ends next. It leaves a stop mark in each
// namespace, as the last write. No other process may use the store then; if one does, it
// finds the store out of service and adopts it. A mark that cannot be left is logged.
func (s *Store) CloseMarked(ctx context.Context) error {
	return s.close(func() {
		for _, n := range s.namespaces {
			if err := n.markStop(ctx); err != nil {
				n.log.Info("the next start adopts the store, because the stop could not be marked", "err", err)
			}
		}
	})
}

// markStop leaves the mark in Redis first: from then on nothing is granted.
func (n *Namespace) markStop(ctx context.Context) error {
	if n.witness == nil || n.store.cfg.Tickets == "" {
		return nil
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	mark := hex.EncodeToString(random)
	return n.witness.withLock(func() error {
		w := n.witness.current()
		floor, grants := n.knownGrants.last()
		if floor != w.Floor {
			grants = 0
		}
		run := n.uncheckedRun()
		if _, err := run(ctx, "mark_stop", w.StoreID, w.Floor, mark, grants); err != nil {
			return err
		}
		path := n.witness.stopPath()
		if err := files.ReplaceInSteps(path, []byte(mark), n.witness.step("stopmark")); err != nil {
			return err
		}
		if err := n.store.runner.faultPoint("ticket.write"); err != nil {
			return err
		}
		// Last, because another process removes a ticket whose mark it does not find.
		return writeTicket(n.store.cfg.Tickets, mark, path)
	})
}

// resume puts a store into service that was stopped under a mark of this machine. Every
// failure means that it is adopted, which the caller sees to. The mark is consumed in the
// memory of the machine, then beside the witness, then in Redis, where grants become
// possible by the same step. A process that is killed in between leaves a store that
// nobody can resume.
func (n *Namespace) resume(ctx context.Context) {
	if n.witness == nil || n.store.cfg.Tickets == "" {
		return
	}
	err := n.witness.withLock(func() error {
		mark, err := n.takeMark()
		if err != nil || mark == "" {
			return err
		}
		run := n.uncheckedRun()
		s, err := n.readStoreState(ctx, run)
		if err != nil {
			return err
		}
		w := n.witness.current()
		if s.Adopted != stoppedServer+mark || s.Store != w.StoreID || s.floor != w.Floor || s.Seq > w.Ceiling {
			return errors.New("the store is not the one that was stopped")
		}
		if err := n.store.checkServer(s); err != nil {
			return err
		}
		_, err = run(ctx, "take_mark", s.Server, s.Store, s.Floor, mark)
		return err
	})
	if err != nil {
		n.log.Info("the store is adopted, although its last stop was marked", "err", err)
	}
}

// takeMark consumes the mark beside the witness, and every ticket that was written for it
// or for an earlier one. It returns "" if there is no mark. Only inside withLock.
func (n *Namespace) takeMark() (string, error) {
	path := n.witness.stopPath()
	tickets, err := takeTickets(n.store.cfg.Tickets, path)
	if err != nil {
		return "", err
	}
	if err := n.store.runner.faultPoint("stopmark.remove"); err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err := errors.Join(err, files.Remove(path)); err != nil {
		return "", err
	}
	if err := n.store.runner.faultPoint("stopmark.removed"); err != nil {
		return "", err
	}
	mark := string(bytes.TrimSpace(text))
	if !slices.Contains(tickets, mark) {
		return "", errNoTicket
	}
	return mark, nil
}

// stopPath is the file that holds the stop mark, beside the witness.
func (w *witness) stopPath() string { return w.path + ".stopped" }

// step names the steps of a write to tests.
func (w *witness) step(of string) func(string) error {
	return func(step string) error {
		if w.fault == nil {
			return nil
		}
		return w.fault(of + "." + step)
	}
}

// ticketPrefix begins the names of all tickets.
const ticketPrefix = "picket-stopped-"

// errNoTicket means that the mark was taken before, that the machine has started since,
// or that the files are a copy.
var errNoTicket = errors.New("this machine has no ticket for the mark")

// stopTicket is the content of a ticket.
type stopTicket struct {
	Mark string `json:"mark"`
	Path string `json:"path"` // of the mark beside the witness
	Boot int64  `json:"boot"` // when the machine started, by its clock
}

// writeTicket makes a ticket, and removes those whose mark has been deleted.
func writeTicket(dir, mark, path string) error {
	boot, err := bootTime()
	if err != nil {
		return err
	}
	for name, other := range readTickets(dir) {
		if _, err := os.Lstat(other.Path); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(name)
		}
	}
	// The name does not tell the mark, since others can list the directory.
	sum := sha1.Sum([]byte(mark))
	name := filepath.Join(dir, ticketPrefix+hex.EncodeToString(sum[:]))
	return files.WriteJSON(name, stopTicket{Mark: mark, Path: path, Boot: boot})
}

// takeTickets deletes the tickets of a path and returns their marks. Of several processes
// one gets a mark. The tickets of other paths are left, because a copy at another path
// must not take that of the original.
func takeTickets(dir, path string) (marks []string, err error) {
	boot, err := bootTime()
	if err != nil {
		return nil, err
	}
	for name, t := range readTickets(dir) {
		if t.Path != path {
			continue
		}
		err := os.Remove(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil && max(t.Boot-boot, boot-t.Boot) <= 1 {
			marks = append(marks, t.Mark)
		}
	}
	return marks, nil
}

// readTickets returns the tickets of this user by their files.
func readTickets(dir string) map[string]stopTicket {
	tickets := map[string]stopTicket{}
	names, _ := filepath.Glob(filepath.Join(dir, ticketPrefix+"*"))
	for _, name := range names {
		if t, err := readTicket(name); err == nil {
			tickets[name] = t
		}
	}
	return tickets
}
