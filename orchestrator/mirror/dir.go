package mirror

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

const (
	policyFile    = "HEARTBEAT.md"
	newPolicyFile = ".HEARTBEAT.md.new" // while it is written

	instructionsFile = "AGENT.md"

	privateDir  = 0o700
	privateFile = 0o600
)

// sourcePath is the path of the file of a name in the directory.
func sourcePath(name string) string { return path.Join(name, policyFile) }

// errLink is the refusal of what is not a file or a directory of its own.
var errLink = errors.New("it is a link or not a regular file, so it is not used")

// dir is the open directory of a mirror. It follows no links.
type dir struct {
	root *os.Root
	step func(string) error
}

// openDir opens a directory, and makes it if it does not exist.
func openDir(where string, step func(string) error) (*dir, error) {
	if err := os.MkdirAll(where, privateDir); err != nil {
		return nil, err
	}
	before, err := os.Lstat(where)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, fmt.Errorf("%s: %w", where, errLink)
	}
	root, err := os.OpenRoot(where)
	if err != nil {
		return nil, err
	}
	if err := sameDir(root, before); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &dir{root: root, step: step}, nil
}

func (d *dir) close() error { return d.root.Close() }

// sameDir refuses a directory that is not the one that was looked at.
func sameDir(root *os.Root, before fs.FileInfo) error {
	after, err := root.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = errLink
	}
	return err
}

// names are the agent names that may have a file here. Links count, so that they are refused.
func (d *dir) names() (names []string, err error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if picket.CheckName("name", e.Name()) == nil && (e.IsDir() || e.Type()&fs.ModeSymlink != 0) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// agent opens the directory of a name. An error that is fs.ErrNotExist means that there is none.
func (d *dir) agent(name string) (*os.Root, error) {
	if err := picket.CheckName("name", name); err != nil {
		return nil, errLink
	}
	before, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, errLink
	}
	agent, err := d.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if err := sameDir(agent, before); err != nil {
		return nil, errors.Join(err, agent.Close())
	}
	return agent, nil
}

// content is what was read of a file.
type content struct {
	bytes   []byte
	digest  string // of the bytes, or Absent
	problem string // why the file is not read, without an absolute path; mostly empty
}

// read reads the policy of a name. Of a file over [heartbeat.MaxSource] it reads one byte more than that.
func (d *dir) read(name string) content { return d.readFile(name, policyFile, heartbeat.MaxSource+1) }

// readInstructions reads the standing instructions of a name. Of a file over [heartbeat.MaxInstructions] it reads one
// byte more than that.
func (d *dir) readInstructions(name string) content {
	return d.readFile(name, instructionsFile, heartbeat.MaxInstructions+1)
}

// readFile reads at most so many bytes of a file of a name.
func (d *dir) readFile(name, file string, most int64) content {
	agent, err := d.agent(name)
	if err != nil {
		return readError(err)
	}
	defer agent.Close()
	b, err := readFile(agent, file, most)
	if err != nil {
		return readError(err)
	}
	return content{bytes: b, digest: heartbeat.RawDigest(b)}
}

func readError(err error) content {
	if errors.Is(err, fs.ErrNotExist) {
		return content{digest: Absent}
	}
	if inPath := new(fs.PathError); errors.As(err, &inPath) {
		err = inPath.Err
	}
	return content{problem: "the file cannot be read: " + err.Error()}
}

// readTries bounds how often a file is opened again that was replaced meanwhile.
const readTries = 3

// readFile reads a regular file, and follows no link.
func readFile(root *os.Root, name string, most int64) (b []byte, err error) {
	for range readTries {
		var again bool
		if b, again, err = readOnce(root, name, most); !again {
			break
		}
	}
	return b, err
}

func readOnce(root *os.Root, name string, most int64) (b []byte, replaced bool, err error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, false, err
	}
	if !before.Mode().IsRegular() {
		return nil, false, errLink
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return nil, errors.Is(err, fs.ErrNotExist), err
	}
	defer f.Close()
	after, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	if !os.SameFile(before, after) {
		return nil, true, errLink
	}
	b, err = io.ReadAll(io.LimitReader(f, most))
	return b, false, err
}

// write replaces the file of a name, if unchanged still holds before the last step. It reports whether it
// did.
func (d *dir) write(name, text string, unchanged func() bool) (done bool, err error) {
	if err := d.root.Mkdir(name, privateDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	agent, err := d.agent(name)
	if err != nil {
		return false, err
	}
	defer agent.Close()
	if err := agent.Chmod(".", privateDir); err != nil {
		return false, err
	}
	return d.replace(agent, policyFile, newPolicyFile, []byte(text), unchanged)
}

// replace writes a file beside another one, and renames it over that.
func (d *dir) replace(in *os.Root, name, beside string, text []byte, unchanged func() bool) (done bool, err error) {
	if err := d.step("file.write"); err != nil {
		return false, err
	}
	if err := in.Remove(beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := create(in, beside, text); err != nil {
		return false, errors.Join(err, in.Remove(beside))
	}
	if err := d.step("file.rename"); err != nil {
		return false, err
	}
	if !unchanged() {
		return false, in.Remove(beside)
	}
	if err := in.Rename(beside, name); err != nil {
		return false, err
	}
	return true, syncDir(in)
}

// create makes a file that does not exist, and waits for the disk.
func create(in *os.Root, name string, text []byte) error {
	f, err := in.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, privateFile)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir waits until a rename is on the disk. Not every system can do that.
func syncDir(in *os.Root) error {
	f, err := in.Open(".")
	if err != nil {
		return err
	}
	_ = f.Sync()
	return f.Close()
}

// remove removes the file of a name, if unchanged still holds. Its directory goes too, if it is empty.
func (d *dir) remove(name string, unchanged func() bool) (done bool, err error) {
	agent, err := d.agent(name)
	if err != nil {
		return false, err
	}
	defer agent.Close()
	if err := d.step("file.remove"); err != nil {
		return false, err
	}
	if !unchanged() {
		return false, nil
	}
	if err := agent.Remove(policyFile); err != nil {
		return false, err
	}
	_ = d.root.Remove(name) // it may have other files
	return true, syncDir(d.root)
}
