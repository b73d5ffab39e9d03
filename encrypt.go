package picket

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
)

// ErrWrongKey is returned for what was wrapped with a key that is not
// here any more, or for another place.
var ErrWrongKey = errors.New("it was sealed with another secret key, or for another place")

// Encrypt encrypts a secret that has to be kept in the store, with a key that only
// a holder of the first secret key can make. place says what it belongs to, as
// "webhook 01J… url": it opens nowhere else.
func (s *Sealer) Encrypt(place string, secret Secret) (string, error) {
	box, err := newAEAD(s.keys[0])
	if err != nil {
		return "", err
	}
	nonce := make([]byte, box.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(box.Seal(nonce, nonce, []byte(secret), []byte(place))), nil
}

// Decrypt opens what Wrap has made with any of the keys, for the same place.
// Anything else is ErrWrongKey.
func (s *Sealer) Decrypt(place, wrapped string) (Secret, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(wrapped)
	if err != nil {
		return "", ErrWrongKey
	}
	for _, key := range s.keys {
		box, err := newAEAD(key)
		if err != nil {
			return "", err
		}
		if len(raw) < box.NonceSize() {
			break
		}
		if plain, err := box.Open(nil, raw[:box.NonceSize()], raw[box.NonceSize():], []byte(place)); err == nil {
			return Secret(plain), nil
		}
	}
	return "", ErrWrongKey
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(derive(key, "wrap"))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
