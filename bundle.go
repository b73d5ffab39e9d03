package picket

import (
	"encoding/hex"

	"github.com/picket-dev/picket/internal/lazyregexp"
)

// Bounds of bundles.
const (
	// BundlePieceSize is the size of every piece of a bundle except the last, in bytes.
	BundlePieceSize = 256 << 10
	// MaxBundleSize is the largest size of a bundle that a server can be set to keep.
	MaxBundleSize = 64 << 20
)

// Bundle describes the committed branch of a task as git bundle packs it. The server keeps the
// last bundle of a task. A run on another machine continues from it.
type Bundle struct {
	TaskID       string  `json:"taskId"`
	RunID        string  `json:"runId"`        // the run that handed it in
	FencingToken int64   `json:"fencingToken"` // of that run
	Branch       string  `json:"branch"`       // the one branch in it
	Base         string  `json:"base"`         // the commit that it does not contain
	Tip          string  `json:"tip"`          // the commit that Branch is at
	Size         int64   `json:"size"`         // bytes
	Pieces       int     `json:"pieces"`       // numbered from 0
	SHA256       string  `json:"sha256"`       // of all bytes
	At           Instant `json:"at"`           // when it was handed in
}

// BundlePiece is one piece of a bundle on its way to the server.
type BundlePiece struct {
	SHA256 string // of the whole bundle
	Size   int64  // of the whole bundle
	Number int    // from 0
	Data   []byte // BundlePieceSize bytes, or what is left in the last piece
}

// BundlePieces returns how many pieces a bundle of size bytes has.
func BundlePieces(size int64) int { return int((size + BundlePieceSize - 1) / BundlePieceSize) }

// CheckBundleDigest refuses what is not a SHA-256 in lower case hexadecimal digits.
func CheckBundleDigest(field, digest string) error {
	if b, err := hex.DecodeString(digest); err != nil || len(b) != 32 || hex.EncodeToString(b) != digest {
		return Invalid(field, "Send the SHA-256 of the whole bundle, 64 hexadecimal digits in lower case.",
			"%s is not a SHA-256", field)
	}
	return nil
}

// CheckBundleSize refuses a size that no bundle has.
func CheckBundleSize(field string, size int64) error {
	if size < 1 || size > MaxBundleSize {
		return Invalid(field, "Send the number of bytes of the whole bundle.", "%s is %d, allowed are 1 to %d", field,
			size, MaxBundleSize)
	}
	return nil
}

// Check refuses a piece that cannot be part of its bundle.
func (p BundlePiece) Check() error {
	if err := CheckBundleDigest("sha256", p.SHA256); err != nil {
		return err
	}
	if err := CheckBundleSize("size", p.Size); err != nil {
		return err
	}
	last := BundlePieces(p.Size) - 1
	if p.Number < 0 || p.Number > last {
		return Invalid("piece", "Number the pieces from 0.", "piece is %d, the last piece of the bundle is %d", p.Number,
			last)
	}
	want := int64(BundlePieceSize)
	if p.Number == last {
		want = p.Size - int64(last)*BundlePieceSize
	}
	if int64(len(p.Data)) != want {
		return Invalid("body", "Send whole pieces; only the last one is smaller.", "piece %d has %d bytes, want %d",
			p.Number, len(p.Data), want)
	}
	return nil
}

// workBranchPattern is that of [WorkBranch]. A name is shown to people and handed to git.
var workBranchPattern = lazyregexp.New(`^picket/[A-Za-z0-9_]{1,64}$`)

var commitPattern = lazyregexp.New(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// Check refuses a description that is out of bounds. TaskID, RunID, FencingToken, Pieces and At
// are the server's.
func (b Bundle) Check() error {
	if err := CheckBundleDigest("/sha256", b.SHA256); err != nil {
		return err
	}
	if err := CheckBundleSize("/size", b.Size); err != nil {
		return err
	}
	if !workBranchPattern().MatchString(b.Branch) {
		return Invalid("/branch", "Send the bundle of the branch of the task: picket/ and the id of the task.",
			"branch is not the name of a branch of a task")
	}
	for _, c := range []struct{ field, id string }{{"/base", b.Base}, {"/tip", b.Tip}} {
		if !commitPattern().MatchString(c.id) {
			return Invalid(c.field, "Send the whole id of a commit.", "%s is not the id of a commit", c.field)
		}
	}
	return nil
}
