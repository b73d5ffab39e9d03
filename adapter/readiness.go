package adapter

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Readiness is what a coding agent finds on this machine.
type Readiness struct {
	Title   string // its name for people
	Program string // its path; empty when it is not on PATH
	Key     string // the variable or the file that it signs in with; empty when there is none
	Remedy  string // what to do about what is missing; empty when nothing is
}

// Readiness looks whether the agent could be started here. PresetExec is always
// ready.
func (p Preset) Readiness() Readiness {
	kind := p.spec()
	if kind == nil {
		return Readiness{Title: "a program of your own"}
	}
	r := Readiness{Title: kind.title}
	if path, err := exec.LookPath(kind.program); err == nil {
		r.Program = path
	}
	r.Key = kind.credential()
	switch {
	case r.Program == "":
		r.Remedy = strings.ToUpper(kind.install[:1]) + kind.install[1:]
	case r.Key == "":
		r.Remedy = "Set " + strings.Join(kind.keys, " or ")
		if len(kind.logins) > 0 {
			r.Remedy += ", or sign in once: " + kind.program
		}
	}
	return r
}

// credential is what the agent would sign in with.
func (k *presetSpec) credential() string {
	for _, name := range k.keys {
		if os.Getenv(name) != "" {
			return name
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	for _, login := range k.logins {
		file := filepath.Join(home, filepath.FromSlash(login))
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}
