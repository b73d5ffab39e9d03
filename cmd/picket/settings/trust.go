package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// ConfigFile is the file that a command takes settings from. Its text is read
// once, so what was checked is what is used.
type ConfigFile struct {
	Path string // as it is shown; empty when there is no file
	Text []byte
	// Local says that the file was found in the current directory. A directory
	// may be a repository of somebody else, so such a file holds only once a
	// person has trusted it.
	Local      bool
	Unreadable error // why a local file could not be read
}

// FindConfig reads the file that --config or PICKET_CONFIG names, else
// picket.yaml in the current directory, else the one in the user's
// configuration directory. A file that was named must be readable.
func FindConfig(cmd *cobra.Command) (ConfigFile, error) {
	named, _ := cmd.Flags().GetString("config")
	if named == "" {
		named = os.Getenv("PICKET_CONFIG")
	}
	if named != "" {
		return readConfig(named)
	}
	own := filepath.Join(ConfigDir(), "picket.yaml")
	if _, err := os.Lstat("picket.yaml"); err == nil && !sameFile("picket.yaml", own) {
		f, err := readConfig("picket.yaml")
		f.Local, f.Unreadable = true, err
		return f, nil
	}
	if _, err := os.Stat(own); err == nil {
		return readConfig(own)
	}
	return ConfigFile{}, nil
}

// maxConfig bounds the configuration file, in bytes.
const maxConfig = 1 << 20

func readConfig(path string) (ConfigFile, error) {
	f := ConfigFile{Path: path}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err == nil && info.Size() > maxConfig {
		err = fmt.Errorf("it has %d bytes, and at most %d are read", info.Size(), maxConfig)
	}
	if err == nil {
		f.Text, err = os.ReadFile(path)
	}
	if err != nil {
		return f, exit.Usagef("the configuration file cannot be read: %v", err)
	}
	return f, nil
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// TrustRecord is what picket remembers of a local file that a person trusted.
// Of the file itself it holds digests and no values, because values can be secret.
type TrustRecord struct {
	Path   string            `json:"path"`
	SHA256 string            `json:"sha256"`
	At     time.Time         `json:"at"`
	Keys   map[string]string `json:"keys"` // the digest of each value, by key
	// AgentFiles are the texts of the files of agent names beside it, by path. They have no secrets of Picket.
	AgentFiles map[string]string `json:"agentFiles,omitempty"`
}

// Digest is the SHA-256 of a text in hexadecimal digits.
func Digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// TrustPath is where the record of a file is kept: in the user's configuration
// directory, one file for each path, so that two commands never write the same.
func TrustPath(absolute string) string {
	return filepath.Join(ConfigDir(), "trusted", Digest([]byte(absolute))+".json")
}

// Absolute is the path of a local file with every symbolic link of its
// directory resolved.
func (f ConfigFile) Absolute() (string, error) {
	dir, err := filepath.Abs(filepath.Dir(f.Path))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	return filepath.Join(dir, filepath.Base(f.Path)), err
}

// TrustRecord reads what is remembered of the file; the zero record if nothing is.
func (f ConfigFile) TrustRecord() (record TrustRecord, err error) {
	path, err := f.Absolute()
	if err != nil {
		return record, err
	}
	return readTrustRecord(path)
}

// readTrustRecord reads what is remembered of the file with an absolute path.
func readTrustRecord(path string) (record TrustRecord, err error) {
	text, err := os.ReadFile(TrustPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err != nil {
		return TrustRecord{}, fmt.Errorf("read what is remembered of %s: %w", path, err)
	}
	if record.Path != path {
		return TrustRecord{}, nil
	}
	return record, nil
}

// DistrustReason says why a local file must not be used; it is empty for a file
// that may.
func (f ConfigFile) DistrustReason() (reason string) {
	if !f.Local {
		return ""
	}
	record, err := f.TrustRecord()
	switch {
	case f.Unreadable != nil:
		return f.Unreadable.Error()
	case err != nil:
		return err.Error()
	case record.SHA256 == "":
		return "it is not trusted yet"
	case record.SHA256 != Digest(f.Text):
		return "it has changed since it was trusted on " + record.At.Format(time.DateOnly)
	}
	texts, err := f.AgentFiles()
	if err != nil {
		return err.Error()
	}
	if changed := record.changedAgentFile(texts); changed != "" {
		return changed + " beside it has changed since it was trusted on " + record.At.Format(time.DateOnly)
	}
	return ""
}

// TrustCommand is the remedy wherever a file is not trusted.
const TrustCommand = "picket config trust"

// trustAnnotation marks the commands that do not run beside a local file that nobody
// trusted: those that start something or take more from the file than the
// address of a server. Every other command ignores such a file and reports it.
const trustAnnotation = "needs trust"

// NeedsTrust makes a command refuse an untrusted local file.
func NeedsTrust(c *cobra.Command) *cobra.Command {
	for _, sub := range c.Commands() {
		NeedsTrust(sub)
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[trustAnnotation] = "yes"
	return c
}

// trustedConfig is the file that a command may use. An untrusted one is an
// error for a command that needs trust, and no file for every other.
func trustedConfig(cmd *cobra.Command) (ConfigFile, error) {
	f, err := FindConfig(cmd)
	if err != nil {
		return f, err
	}
	reason := f.DistrustReason()
	if reason == "" {
		return f, nil
	}
	if cmd.Annotations[trustAnnotation] != "" {
		return ConfigFile{}, picket.Refuse(exit.CodeUsage,
			"Read the file. To use it, run: "+TrustCommand+". To use another file, set --config.",
			"%s in this directory is not used: %s", f.Path, reason)
	}
	reportIgnored(cmd, f, reason)
	return ConfigFile{}, nil
}

// ignoredAnnotation marks a command that has reported the file it ignores.
const ignoredAnnotation = "ignored file reported"

func reportIgnored(cmd *cobra.Command, f ConfigFile, reason string) {
	if cmd.Annotations[ignoredAnnotation] != "" {
		return
	}
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[ignoredAnnotation] = "yes"
	fmt.Fprintf(cmd.ErrOrStderr(), "%s in this directory is ignored: %s (to use it, run: %s)\n",
		term.OneLine(f.Path), term.OneLine(reason), TrustCommand)
}

// ConfigPath is the path of the file that a command may use; empty when there
// is none.
func ConfigPath(cmd *cobra.Command) string {
	f, err := FindConfig(cmd)
	if err != nil || f.DistrustReason() != "" {
		return ""
	}
	return f.Path
}
