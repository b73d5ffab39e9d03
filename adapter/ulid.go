package adapter

import (
	crand "crypto/rand"
	"time"
)

// newULID makes an id of a time in milliseconds and 80 random bits, in
// Crockford's base 32.
func newULID(at time.Time) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var id [26]byte
	ms := at.UnixMilli()
	for i := 9; i >= 0; i-- {
		id[i] = digits[ms&31]
		ms >>= 5
	}
	crand.Read(id[10:])
	for i := 10; i < len(id); i++ {
		id[i] = digits[id[i]&31]
	}
	return string(id[:])
}
