package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/seal"
)

// The secret file holds one or two lines of 64 hexadecimal digits. The first
// seals leases, both open them: put a new one on top to rotate.

// loadSealer reads the secret file.
func loadSealer(path string) (*seal.Sealer, error) {
	text, err := cli.ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, picket.Refuse(exit.CodeUsage, "Make one: picket init --redis URL --secret-file "+path,
			"the secret file %s does not exist", path)
	}
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	for line := range strings.Lines(text.Reveal()) {
		key, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			return nil, exit.Usagef("%s: a secret is 64 hexadecimal digits a line", path)
		}
		keys = append(keys, key)
	}
	sealer, err := seal.New(keys...)
	if err != nil {
		return nil, exit.Usagef("%s: %v", path, err)
	}
	return sealer, nil
}

// ensureSealer makes the secret file when it is missing.
func ensureSealer(path string) (*seal.Sealer, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := files.WritePrivate(path, []byte(hex.EncodeToString(randomKey())+"\n")); err != nil {
			return nil, err
		}
	}
	return loadSealer(path)
}

// ensureAdminKey reads the admin key of a namespace, or makes one.
func ensureAdminKey(path, namespace string) (picket.Secret, error) {
	key, err := cli.ReadSecret(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	key = picket.Secret(picket.KeyPrefix + namespace + "_" + base64.RawURLEncoding.EncodeToString(randomKey()))
	if err := files.WritePrivate(path, []byte(key.Reveal()+"\n")); err != nil {
		return "", fmt.Errorf("keep the admin key: %w", err)
	}
	return key, nil
}

func randomKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return key
}
