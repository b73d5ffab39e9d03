package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/mirror"
)

// PolicyStore returns the policies of a namespace as a directory of files needs them.
func (e *Engine) PolicyStore() mirror.Store { return policyStore{e} }

// RefreshPolicies makes the engine call refresh before it reads or changes the policy of a name. It is for
// the process with the directory, which locks it as holder, and is called before the engine is used.
func (e *Engine) RefreshPolicies(holder string, refresh func(ctx context.Context, name string) error) {
	e.refreshPolicy, e.policyHolder = refresh, holder
}

// policyStore is the part of an engine that a directory of policy files uses.
type policyStore struct{ e *Engine }

// Lock implements mirror.Store.
func (s policyStore) Lock(ctx context.Context, holder string) (heads []mirror.Head, held bool, err error) {
	r := s.e.run(ctx, "lock_policies", holder, mirror.Lease.Milliseconds())
	var v struct {
		Locked int64 `reply:"locked"`
		Heads  []struct {
			Name   string `reply:"name"`
			ID     string `reply:"id"`
			Action string `reply:"action"`
			Over   string `reply:"over"`
		} `reply:"heads"`
	}
	r.Decode(&v)
	for _, h := range v.Heads {
		heads = append(heads, mirror.Head{Name: h.Name, RevisionID: h.ID,
			Deleted: h.Action == picket.PolicyDeleted, Over: h.Over})
	}
	return heads, r.Err == nil && v.Locked == 1, r.Err
}

// Release implements mirror.Store.
func (s policyStore) Release(ctx context.Context, holder string) error {
	return s.e.run(ctx, "lock_policies", holder, 0).Err
}

// Text implements mirror.Store.
func (s policyStore) Text(ctx context.Context, name, revisionID string) (string, error) {
	stored, err := s.e.storedPolicy(ctx, name, revisionID)
	return stored.row.Body, err
}

// policyFileRecord is what the store keeps of a file that differs from it.
type policyFileRecord struct {
	State       mirror.State           `json:"state"`
	Revision    string                 `json:"revision"`
	Digest      string                 `json:"digest"`
	Body        string                 `json:"body"`
	Diagnostics []heartbeat.Diagnostic `json:"diagnostics"`
}

// instructionsRecord is what the store keeps of a file of standing instructions beside their text.
type instructionsRecord struct {
	Path        string                 `json:"path"`
	Digest      string                 `json:"digest"`
	Bytes       int                    `json:"bytes"` // of the text
	Diagnostics []heartbeat.Diagnostic `json:"diagnostics"`
}

// shown is what people are told about it; nil: the name has no such file.
func (r *instructionsRecord) shown() *picket.AgentInstructions {
	if r == nil {
		return nil
	}
	return &picket.AgentInstructions{Path: r.Path, Digest: r.Digest, Bytes: r.Bytes,
		Diagnostics: policyDiagnostics(r.Diagnostics)}
}

// maxPolicyFiles bounds the bytes of all files that differ from the store.
const maxPolicyFiles = 32 << 20

// Publish implements mirror.Store.
func (s policyStore) Publish(ctx context.Context, holder string, files []mirror.File,
	instructions []mirror.Instructions) error {
	args, size := []any{holder, len(files)}, 0
	for _, f := range files {
		record, err := json.Marshal(policyFileRecord{f.State, f.Revision, f.Digest, f.Body, f.Diagnostics})
		if err != nil {
			return fmt.Errorf("publish the policy file of %s: %w", f.Name, err)
		}
		args, size = append(args, f.Name, string(record)), size+len(record)
	}
	if size > maxPolicyFiles {
		return fmt.Errorf("the files of wake policies that differ from the store have %d bytes, at most %d are allowed",
			size, maxPolicyFiles)
	}
	for _, i := range instructions {
		record, err := json.Marshal(instructionsRecord{i.Path, i.Digest, len(i.Text), i.Diagnostics})
		if err != nil {
			return fmt.Errorf("publish the instructions of %s: %w", i.Name, err)
		}
		args = append(args, i.Name, string(record), boolArg(len(i.Diagnostics) > 0), i.Text)
	}
	r := s.e.run(ctx, "publish_policies", args...)
	if r.Err == nil && r.Int(r.Value) == 0 {
		return picket.Refuse(picket.CodeStateConflict, "It is repeated.", "another process has the directory of policies")
	}
	return r.Err
}

// policyState is policy_state of the scripts.
type policyState struct {
	Name   string            `reply:"name"`
	Raw    int64             `reply:"raw"` // ms
	Rows   []policyRow       `reply:"rows"`
	Newest string            `reply:"newest"`
	Over   string            `reply:"over"`
	File   *policyFileRecord `reply:"file,json"`

	Instructions *instructionsRecord `reply:"instructions,json"`
}

func (v policyState) stored() storedPolicy {
	s := storedPolicy{now: picket.Instant(v.Raw), newest: v.Newest, over: v.Over, file: v.File,
		instructions: v.Instructions}
	if len(v.Rows) > 0 {
		s.row = v.Rows[0]
	}
	return s
}

// storedPolicy is the policy of a name in the store, with its file if that differs.
type storedPolicy struct {
	row    policyRow // without an id if there is no policy
	now    picket.Instant
	newest string // id of the newest revision, which may be a deletion
	over   string // digest of the file in place of which that was written
	file   *policyFileRecord

	instructions *instructionsRecord
}

// differing returns the file if it differs from the store as it is now, or nil. The store may have changed
// after the file was compared with it.
func (s storedPolicy) differing() *policyFileRecord {
	f, stored := s.file, mirror.Absent
	if s.row.ID != "" {
		stored = heartbeat.RawDigest([]byte(s.row.Body))
	}
	switch {
	case f == nil || f.State == mirror.StateRefused || f.State == mirror.StateWorkspace || f.Revision == s.newest:
		return f
	case f.Digest == s.over || f.Digest == stored:
		return nil
	}
	changed := *f
	changed.State = mirror.StateConflict
	return &changed
}

// policyNow shows the policy that counts: that of the file, if it was edited, and else that of the store.
func (e *Engine) policyNow(name string, s storedPolicy) picket.WakePolicy {
	p := e.policyWithFile(name, s)
	p.Instructions = s.instructions.shown()
	return p
}

func (e *Engine) policyWithFile(name string, s storedPolicy) picket.WakePolicy {
	stored, f := e.policyOf(name, s.row), s.differing()
	if f == nil {
		return stored
	}
	path := policyPath(name, f.State)
	file := picket.PolicyFile{State: string(f.State), Path: path}
	inFile := e.policyInFile(name, path, f)
	file.Digest = inFile.Digest
	p := inFile
	switch f.State {
	case mirror.StateRemoved:
		p = policyRow{}.policy(name, e.store.cfg.Wake)
	case mirror.StateConflict:
		p = withError(stored, picket.PolicyDiagnostic{Code: string(picket.CodePolicyConflict), SourcePath: path,
			Message: "the file and the store were both changed"})
	case mirror.StateRefused:
		p = stored
		for _, d := range policyDiagnostics(f.Diagnostics) {
			p = withError(p, d)
		}
	}
	p.File = &file
	return p
}

// policyPath is the path of the file of a policy, as people see it.
func policyPath(name string, state mirror.State) string {
	if state == mirror.StateWorkspace {
		return picket.AgentFilesDir + "/" + name + "/HEARTBEAT.md"
	}
	return name + "/HEARTBEAT.md"
}

// withError is a policy that does not count because of an error.
func withError(p picket.WakePolicy, d picket.PolicyDiagnostic) picket.WakePolicy {
	d.Severity = string(heartbeat.SeverityError)
	p.Present, p.Valid = true, false
	p.Diagnostics = append([]picket.PolicyDiagnostic{d}, p.Diagnostics...)
	return p
}

// policyInFile shows what a file has. That of an invalid one does not have its text.
func (e *Engine) policyInFile(name, path string, f *policyFileRecord) picket.WakePolicy {
	p := policyRow{}.policy(name, e.store.cfg.Wake)
	if f.Digest == mirror.Absent || f.Digest == "" {
		return p
	}
	invalid := slices.ContainsFunc(f.Diagnostics, func(d heartbeat.Diagnostic) bool {
		return d.Severity == heartbeat.SeverityError
	})
	if invalid {
		p.Present, p.Digest, p.Diagnostics = true, f.Digest, policyDiagnostics(f.Diagnostics)
		return p
	}
	p = policyRow{Body: f.Body}.shown(name, e.store.cfg.Wake, heartbeat.ModeFile)
	p.WrittenAt = nil
	for i := range p.Diagnostics {
		p.Diagnostics[i].SourcePath = path
	}
	return p
}

// overFile is the digest of the file in place of which a change is made, or empty.
func (s storedPolicy) overFile() string {
	if f := s.differing(); f != nil {
		return f.Digest
	}
	return ""
}

// admits reports whether a change that expects a digest is made in view of the policy that counts. In a
// conflict that is either of both.
func admits(p picket.WakePolicy, expected string) bool {
	return p.Digest == expected ||
		p.File != nil && p.File.State == picket.PolicyFileConflict && p.File.Digest == expected
}

// isOfWorkspace reports whether the policy is that of the trusted files beside picket.yaml, which only these change.
func isOfWorkspace(p picket.WakePolicy) bool {
	return p.File != nil && p.File.State == picket.PolicyFileWorkspace
}

// policyFileError is the refusal to read a policy whose file and store were both changed, or nil.
func policyFileError(p picket.WakePolicy) error {
	if p.File == nil || p.File.State != picket.PolicyFileConflict {
		return nil
	}
	return picket.Refuse(picket.CodePolicyConflict, "Write the policy again with the digest of either: "+
		"picket agent heartbeat write "+p.AgentName+" --file HEARTBEAT.md --if-match "+cmp.Or(p.Digest, p.File.Digest),
		"the file %s and the store were both changed", p.File.Path).
		With("policy", p).With("currentDigest", p.Digest).With("fileDigest", p.File.Digest)
}
