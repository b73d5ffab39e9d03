package mirror

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// fakeStore is a store with a lock of its own clock.
type fakeStore struct {
	mu        sync.Mutex // for Run, which is beside its test
	now       time.Duration
	holder    string
	until     time.Duration
	texts     map[string]string // by revision id
	heads     map[string]*Head
	revisions int
	files     []File
	told      []Instructions
	publishes int
}

func newFakeStore() *fakeStore {
	return &fakeStore{texts: map[string]string{}, heads: map[string]*Head{}}
}

func (s *fakeStore) put(name, text, over string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revisions++
	id := fmt.Sprintf("revision_%d", s.revisions)
	s.texts[id] = text
	s.heads[name] = &Head{Name: name, RevisionID: id, Over: over}
}

func (s *fakeStore) delete(name, over string) {
	s.put(name, "", over)
	s.heads[name].Deleted = true
}

func (s *fakeStore) Lock(_ context.Context, holder string) (heads []Head, held bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != "" && s.holder != holder && s.now < s.until {
		return nil, false, nil
	}
	s.holder, s.until = holder, s.now+Lease
	for _, h := range s.heads {
		heads = append(heads, *h)
	}
	return heads, true, nil
}

func (s *fakeStore) Text(_ context.Context, _, id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.texts[id], nil
}

func (s *fakeStore) Publish(_ context.Context, holder string, files []File, told []Instructions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != holder || s.now >= s.until {
		return errors.New("not the holder")
	}
	s.files, s.told, s.publishes = slices.Clone(files), slices.Clone(told), s.publishes+1
	return nil
}

func (s *fakeStore) Release(_ context.Context, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == holder {
		s.holder = ""
	}
	return nil
}

// bench is a directory with a store.
type bench struct {
	t     *testing.T
	dir   string
	store *fakeStore
	fault func(string) error
	now   func() time.Time

	workspace    map[string]WorkspaceAgent
	workspaceErr error
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, dir: filepath.Join(t.TempDir(), "agents"), store: newFakeStore()}
}

// process is a process with the directory.
func (b *bench) process(holder string) *Directory {
	b.t.Helper()
	m, err := New(Config{Dir: b.dir, Namespace: "default", Holder: holder, Store: b.store,
		Settings: heartbeat.Defaults(), Fault: b.fault, Now: b.now,
		Workspace: func() (map[string]WorkspaceAgent, error) { return b.workspace, b.workspaceErr }})
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *bench) pass(m *Directory) {
	b.t.Helper()
	if err := m.Pass(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name, policyFile) }

func (b *bench) edit(name, text string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(b.path(name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) unlink(name string) {
	b.t.Helper()
	if err := os.Remove(b.path(name)); err != nil {
		b.t.Fatal(err)
	}
}

// want compares the file of ann, "-" if there is none, and the state that was published of it.
func (b *bench) want(text string, state State) {
	b.t.Helper()
	got := Absent
	if read, err := os.ReadFile(b.path("ann")); err == nil {
		got = string(read)
	}
	var published State
	for _, f := range b.store.files {
		if f.Name == "ann" {
			published = f.State
		}
	}
	if got != text || published != state {
		b.t.Errorf("the file is %q and its state %q; want %q, %q", got, published, text, state)
	}
}
