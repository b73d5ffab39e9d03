package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/files"
)

// Profile is where the commands find the server that `picket up` started last.
// It names the file of the key, not the key.
type Profile struct {
	URL     string `json:"url"`
	KeyFile string `json:"keyFile"`
}

func profilePath() string { return filepath.Join(settings.ConfigDir(), "profile.json") }

func loadProfile() (Profile, error) {
	var p Profile
	b, err := os.ReadFile(profilePath())
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return p, picket.Refuse(exit.CodeUsage, "Remove the file, then start `picket up` again.",
			"the profile %s cannot be read: %v", profilePath(), err)
	}
	return p, nil
}

func saveProfile(p Profile) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return files.WritePrivate(profilePath(), append(b, '\n'))
}

// SwitchProfile makes the commands use a server. If they use another one that still answers, it
// changes nothing and returns the URL of that one.
func SwitchProfile(ctx context.Context, p Profile) (other string, err error) {
	if saved, err := loadProfile(); err == nil && saved.URL != p.URL && saved.reachable(ctx) {
		return saved.URL, nil
	}
	return "", saveProfile(p)
}

// reachable reports whether a server is there that knows the profile's key.
func (p Profile) reachable(ctx context.Context) bool {
	if p.URL == "" {
		return false
	}
	key, err := ReadSecret(p.KeyFile)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s := NewConnection(p.URL, key)
	_, err = s.Server.Stats(ctx)
	return err == nil
}

// ReadSecret reads a one-line secret from a file that nobody else may read.
func ReadSecret(path string) (picket.Secret, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", picket.Refuse(exit.CodeUsage, "chmod 600 "+path, "%s can be read by others", path)
	}
	b, err := os.ReadFile(path)
	return picket.Secret(strings.TrimSpace(string(b))), err
}
