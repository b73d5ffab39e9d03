package mirror

import (
	stdjson "encoding/json"
	"errors"
	"io/fs"

	"github.com/picket-dev/picket"
)

const (
	manifestFile    = ".mirror.json"
	newManifestFile = ".mirror.json.new" // while it is written
	maxManifest     = 1 << 20
)

// manifest is what was mirrored in a directory. It is a file there.
type manifest struct {
	Version   int               `json:"version"`
	Namespace string            `json:"namespace"`
	Files     map[string]*entry `json:"files"` // by agent name
}

// entry is the file of one name as it was mirrored.
type entry struct {
	// Digest is that of the bytes, or Absent.
	Digest string `json:"digest"`
	// Revision is the id of the revision. It is empty while Next is set.
	Revision string `json:"revision,omitempty"`
	// Next is the digest of the bytes that are written next, or Absent. It is mostly empty.
	Next string `json:"next,omitempty"`
}

const manifestVersion = 1

// readManifest reads what was mirrored for a namespace. One that is damaged, or of another namespace, is
// taken for none, so that nothing is overwritten or removed because of it.
func (d *dir) readManifest(namespace string) (*manifest, error) {
	none := &manifest{Version: manifestVersion, Namespace: namespace, Files: map[string]*entry{}}
	b, err := readFile(d.root, manifestFile, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	if stdjson.Unmarshal(b, m) != nil || m.Version != manifestVersion || m.Namespace != namespace || m.Files == nil {
		return none, nil
	}
	for name, e := range m.Files {
		if e == nil || e.Digest == "" || picket.CheckName("name", name) != nil {
			delete(m.Files, name)
		}
	}
	return m, nil
}

func (d *dir) writeManifest(m *manifest) error {
	b, err := stdjson.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	always := func() bool { return true }
	quiet := &dir{root: d.root, step: func(string) error { return nil }} // its step was asked for already
	_, err = quiet.replace(d.root, manifestFile, newManifestFile, b, always)
	return err
}
