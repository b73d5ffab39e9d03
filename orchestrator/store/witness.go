package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
)

// lockWait bounds the wait for the lock of the witness: another process may have been
// stopped while it had it. It is longer than an adoption takes with its wait for the clock.
const lockWait = 1500 * time.Millisecond

// witness is what this machine knows of a namespace's store even when the store
// forgets: the highest floor it ever used and a number above every sequence
// number it has seen. It is a small file, and several processes may share it.
type witness struct {
	path  string
	fault func(point string) error

	mu     sync.Mutex // held by who is allowed to raise
	record atomic.Pointer[floorRecord]
}

// floorRecord is the content of the file. Its numbers only rise.
type floorRecord struct {
	Namespace string `json:"namespace"`
	StoreID   string `json:"storeId"` // of the last store seen
	Floor     int64  `json:"floor"`   // no token above it was granted by a store with a lower floor
	Ceiling   int64  `json:"ceiling"` // above every sequence number seen
}

// isEmpty reports whether nothing was ever witnessed.
func (w floorRecord) isEmpty() bool { return w.StoreID == "" && w.Floor == 0 }

// openWitness reads the file of a namespace of the store at an address, so two stores can share a
// directory.
func openWitness(dir, namespace, address string, fault func(string) error) (*witness, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open witness: %w", err)
	}
	sum := sha256.Sum256([]byte(address))
	w := &witness{path: filepath.Join(dir, fmt.Sprintf("%s@%x.json", namespace, sum[:4])), fault: fault}
	w.record.Store(&floorRecord{Namespace: namespace})
	return w, w.withLock(func() error { return nil })
}

// WitnessedFloor is the floor that a witness in a directory holds for a
// namespace of a store; known is false where there is none.
func WitnessedFloor(dir, namespace, storeID string) (floor int64, known bool, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, namespace+"@*.json"))
	for _, path := range paths {
		w := &witness{path: path}
		w.record.Store(&floorRecord{Namespace: namespace})
		file, err := w.read()
		if err != nil {
			return 0, false, err
		}
		if file.StoreID == storeID {
			floor, known = max(floor, file.Floor), true
		}
	}
	return floor, known, err
}

// writable tries what raise would have to do.
func (w *witness) writable() error {
	temp := w.path + ".try"
	if err := os.WriteFile(temp, []byte("1"), 0o600); err != nil {
		return w.unwritable(err)
	}
	return os.Remove(temp)
}

// current is what was last read or written.
func (w *witness) current() floorRecord { return *w.record.Load() }

// withLock runs do while no other goroutine, and no other process that shares the
// file, can raise the witness; it begins by reading the file.
func (w *witness) withLock(do func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	lock, err := files.LockFile(context.Background(), w.path+".lock", lockWait)
	if err != nil {
		return w.unwritable(err)
	}
	defer lock.Close()
	file, err := w.read()
	if err != nil && w.current().isEmpty() {
		return err // and else it is written again
	}
	known := w.current().mergedWith(file)
	w.record.Store(&known)
	return do()
}

// raise makes higher numbers durable before it returns. Only inside withLock.
func (w *witness) raise(to floorRecord) error {
	next := w.current().mergedWith(to)
	next.StoreID = to.StoreID
	if file, err := w.read(); err == nil && file == next {
		return nil
	}
	if err := w.write(next); err != nil {
		return w.unwritable(err)
	}
	w.record.Store(&next)
	return nil
}

func (w *witness) unwritable(err error) error {
	e := picket.Refuse(picket.CodeUnavailable,
		"Give "+filepath.Dir(w.path)+" free space and the right to write, then repeat the same request.",
		"the witness of the store cannot be written")
	e.RetryAfter = time.Second
	return e.WithCause(err)
}

// mergedWith never lowers a number: a file that was lost or put back from an older
// copy is not a reason to.
func (w floorRecord) mergedWith(other floorRecord) floorRecord {
	if w.StoreID == "" {
		w.StoreID = other.StoreID
	}
	w.Floor, w.Ceiling = max(w.Floor, other.Floor), max(w.Ceiling, other.Ceiling)
	return w
}

func (w *witness) read() (floorRecord, error) {
	namespace := w.current().Namespace
	text, err := os.ReadFile(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		return floorRecord{}, nil
	}
	if err != nil {
		return floorRecord{}, fmt.Errorf("read witness: %w", err)
	}
	var file floorRecord
	if err := json.Unmarshal(text, &file, json.RejectUnknownMembers(true)); err != nil ||
		file.Namespace != namespace || file.Floor < 0 {
		return floorRecord{}, picket.Refuse(picket.CodeUnavailable,
			"Move it away and start again: the floor is then taken from Redis, or from the clock where that is another server.",
			"the witness file %s is damaged", w.path).WithCause(err)
	}
	return file, nil
}

func (w *witness) write(next floorRecord) error {
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	return files.ReplaceInSteps(w.path, append(text, '\n'), w.step("witness"))
}
