//go:build linux

package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// credential is a lease token, a session capability or an API key, whole enough to be used.
var credential = regexp.MustCompile(`pk[lsk]_[A-Za-z0-9_.~-]{12,}`)

// leaks searches every file that the processes of a run left, their stores
// included, for a credential or the content of a secret file. Only the files
// made to hold a secret may hold it.
func leaks(root string) (found []string) {
	secrets := map[string][]byte{}
	each(root, func(path string, text []byte) {
		if filepath.Base(path) == "secret.key" {
			secrets[path] = bytes.TrimSpace(text)
		}
	})
	each(root, func(path string, text []byte) {
		name := filepath.Base(path)
		if name == "secret.key" || strings.HasPrefix(name, "admin") && strings.HasSuffix(name, ".key") {
			return
		}
		if name == "lease.json" && private(path) { // of a run whose adapter was killed
			return
		}
		rel, _ := filepath.Rel(root, path)
		if hit := credential.Find(text); hit != nil {
			found = append(found, rel+": "+string(hit[:10])+"…")
		}
		for _, secret := range secrets {
			if bytes.Contains(text, secret) {
				found = append(found, rel+": the content of secret.key")
			}
		}
	})
	return found
}

// private reports a file, in a directory, that only its owner can read.
func private(path string) bool {
	for _, p := range []string{path, filepath.Dir(path)} {
		info, err := os.Stat(p)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			return false
		}
	}
	return true
}

func each(root string, visit func(path string, text []byte)) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == binary() {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil {
			visit(path, text)
		}
		return nil
	})
}
