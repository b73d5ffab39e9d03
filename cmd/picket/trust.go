package main

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
)

// configFile is the file that a command takes settings from. Its text is read
// once, so what was checked is what is used.
type configFile struct {
	path string // as it is shown; empty when there is no file
	text []byte
	// local says that the file was found in the current directory. A directory
	// may be a repository of somebody else, so such a file holds only once a
	// person has trusted it.
	local      bool
	unreadable error // why a local file could not be read
}

// findConfig reads the file that --config or PICKET_CONFIG names, else
// picket.yaml in the current directory, else the one in the user's
// configuration directory. A file that was named must be readable.
func findConfig(cmd *cobra.Command) (configFile, error) {
	named, _ := cmd.Flags().GetString("config")
	if named == "" {
		named = os.Getenv("PICKET_CONFIG")
	}
	if named != "" {
		return readConfig(named)
	}
	own := filepath.Join(configDir(), "picket.yaml")
	if _, err := os.Lstat("picket.yaml"); err == nil && !sameFile("picket.yaml", own) {
		f, err := readConfig("picket.yaml")
		f.local, f.unreadable = true, err
		return f, nil
	}
	if _, err := os.Stat(own); err == nil {
		return readConfig(own)
	}
	return configFile{}, nil
}

// maxConfig bounds the configuration file, in bytes.
const maxConfig = 1 << 20

func readConfig(path string) (configFile, error) {
	f := configFile{path: path}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err == nil && info.Size() > maxConfig {
		err = fmt.Errorf("it has %d bytes, and at most %d are read", info.Size(), maxConfig)
	}
	if err == nil {
		f.text, err = os.ReadFile(path)
	}
	if err != nil {
		return f, usageError("the configuration file cannot be read: %v", err)
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

// trustRecord is what picket remembers of a local file that a person trusted.
// It holds digests and no values, because values can be secret.
type trustRecord struct {
	Path   string            `json:"path"`
	SHA256 string            `json:"sha256"`
	At     time.Time         `json:"at"`
	Keys   map[string]string `json:"keys"` // the digest of each value, by key
}

func sha256Hex(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// trustPath is where the record of a file is kept: in the user's configuration
// directory, one file for each path, so that two commands never write the same.
func trustPath(absolute string) string {
	return filepath.Join(configDir(), "trusted", sha256Hex([]byte(absolute))+".json")
}

// absolute is the path of a local file with every symbolic link of its
// directory resolved.
func (f configFile) absolute() (string, error) {
	dir, err := filepath.Abs(filepath.Dir(f.path))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	return filepath.Join(dir, filepath.Base(f.path)), err
}

// trustRecord reads what is remembered of the file; the zero record if nothing is.
func (f configFile) trustRecord() (record trustRecord, err error) {
	path, err := f.absolute()
	if err != nil {
		return record, err
	}
	text, err := os.ReadFile(trustPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err != nil {
		return trustRecord{}, fmt.Errorf("read what is remembered of %s: %w", path, err)
	}
	if record.Path != path {
		return trustRecord{}, nil
	}
	return record, nil
}

// distrustReason says why a local file must not be used; it is empty for a file
// that may.
func (f configFile) distrustReason() (reason string) {
	if !f.local {
		return ""
	}
	record, err := f.trustRecord()
	switch {
	case f.unreadable != nil:
		return f.unreadable.Error()
	case err != nil:
		return err.Error()
	case record.SHA256 == "":
		return "it is not trusted yet"
	case record.SHA256 != sha256Hex(f.text):
		return "it has changed since it was trusted on " + record.At.Format(time.DateOnly)
	}
	return ""
}

// trustCommand is the remedy wherever a file is not trusted.
const trustCommand = "picket config trust"

// trustAnnotation marks the commands that do not run beside a local file that nobody
// trusted: those that start something or take more from the file than the
// address of a server. Every other command ignores such a file and reports it.
const trustAnnotation = "needs trust"

// needsTrust makes a command refuse an untrusted local file.
func needsTrust(c *cobra.Command) *cobra.Command {
	for _, sub := range c.Commands() {
		needsTrust(sub)
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[trustAnnotation] = "yes"
	return c
}

// trustedConfig is the file that a command may use. An untrusted one is an
// error for a command that needs trust, and no file for every other.
func trustedConfig(cmd *cobra.Command) (configFile, error) {
	f, err := findConfig(cmd)
	if err != nil {
		return f, err
	}
	reason := f.distrustReason()
	if reason == "" {
		return f, nil
	}
	if cmd.Annotations[trustAnnotation] != "" {
		return configFile{}, picket.Refuse(codeUsage,
			"Read the file. To use it, run: "+trustCommand+". To use another file, set --config.",
			"%s in this directory is not used: %s", f.path, reason)
	}
	reportIgnored(cmd, f, reason)
	return configFile{}, nil
}

// ignoredAnnotation marks a command that has reported the file it ignores.
const ignoredAnnotation = "ignored file reported"

func reportIgnored(cmd *cobra.Command, f configFile, reason string) {
	if cmd.Annotations[ignoredAnnotation] != "" {
		return
	}
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[ignoredAnnotation] = "yes"
	fmt.Fprintf(cmd.ErrOrStderr(), "%s in this directory is ignored: %s (to use it, run: %s)\n",
		oneLine(f.path), oneLine(reason), trustCommand)
}

// configPath is the path of the file that a command may use; empty when there
// is none.
func configPath(cmd *cobra.Command) string {
	f, err := findConfig(cmd)
	if err != nil || f.distrustReason() != "" {
		return ""
	}
	return f.path
}

// configFinding says for `picket doctor` which file is used, or why one is not.
func configFinding(cmd *cobra.Command) finding {
	f, err := findConfig(cmd)
	switch reason := f.distrustReason(); {
	case err != nil:
		return finding{"configuration", "fail", errorText(err), remedyOf(err)}
	case reason != "":
		return finding{"configuration", "warn", f.path + " in this directory is ignored: " + reason,
			"Read the file, then run: " + trustCommand}
	case f.path == "":
		return finding{"configuration", "ok", "no picket.yaml; defaults and environment", ""}
	}
	return finding{"configuration", "ok", f.path, ""}
}
