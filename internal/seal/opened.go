package seal

import (
	"crypto/sha256"
	"sync"

	"github.com/picket-dev/picket"
)

// maxOpened bounds the lease tokens of one generation of a cache. An entry has about 300 bytes.
const maxOpened = 8192

// openedTokens keeps what lease tokens have opened as, since each token is sent with many calls. It knows a token by
// its SHA-256 only. It belongs to one Sealer, so it ends with the keys that opened the tokens. What it keeps grants
// nothing: the store decides with every call whether a lease still holds.
//
// New tokens are in the young generation. When it is full, it becomes the old one, and the old one is forgotten. A
// token that is used again while it is old becomes young.
type openedTokens struct {
	mu    sync.RWMutex
	young map[tokenHash]picket.LeaseCredential
	old   map[tokenHash]picket.LeaseCredential
}

type tokenHash [sha256.Size]byte

func hashToken(token string) tokenHash {
	var buffer [maxToken]byte
	return sha256.Sum256(append(buffer[:0], token...))
}

// find returns what a token has opened as.
func (o *openedTokens) find(h tokenHash) (held picket.LeaseCredential, ok bool) {
	o.mu.RLock()
	held, ok = o.young[h]
	isOld := false
	if !ok {
		held, isOld = o.old[h]
	}
	o.mu.RUnlock()
	if isOld {
		o.keep(h, held)
	}
	return held, ok || isOld
}

// keep keeps what a token has opened as.
func (o *openedTokens) keep(h tokenHash, held picket.LeaseCredential) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.young == nil || len(o.young) >= maxOpened {
		o.old, o.young = o.young, map[tokenHash]picket.LeaseCredential{}
	}
	o.young[h] = held
}
