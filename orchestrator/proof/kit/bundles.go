package kit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// Bundle is a bundle as the server takes it: any bytes.
type Bundle struct{ Data []byte }

// BundleOf is a bundle of size bytes that begins with a character.
func BundleOf(size int, first byte) Bundle {
	return Bundle{append([]byte{first}, bytes.Repeat([]byte{'\r', 0, '\n', 0xff}, size/4+1)...)[:size]}
}

// Digest is the SHA-256 of the bundle.
func (b Bundle) Digest() string {
	sum := sha256.Sum256(b.Data)
	return hex.EncodeToString(sum[:])
}

// Piece is one piece of the bundle.
func (b Bundle) Piece(n int) picket.BundlePiece {
	from := n * picket.BundlePieceSize
	return picket.BundlePiece{SHA256: b.Digest(), Size: int64(len(b.Data)), Number: n,
		Data: b.Data[from:min(from+picket.BundlePieceSize, len(b.Data))]}
}

// About describes the bundle.
func (b Bundle) About() picket.Bundle {
	return picket.Bundle{SHA256: b.Digest(), Size: int64(len(b.Data)), Branch: "picket/t",
		Base: strings.Repeat("b", 40), Tip: b.Digest()[:40]}
}

// MustSendPieces sends the first n pieces of a bundle.
func (f *Fixture) MustSendPieces(t *testing.T, h picket.LeaseCredential, b Bundle, n int) {
	t.Helper()
	for i := range n {
		if kept, err := f.RunBundlePiece(f.Ctx, h, b.Piece(i)); err != nil || kept {
			t.Fatalf("piece %d: kept %t, %v", i, kept, err)
		}
	}
}

// MustKeepBundle hands in a whole bundle.
func (f *Fixture) MustKeepBundle(t *testing.T, h picket.LeaseCredential, b Bundle) {
	t.Helper()
	f.MustSendPieces(t, h, b, picket.BundlePieces(int64(len(b.Data))))
	OK(t, f.RunBundle(f.Ctx, h, b.About()))
}
