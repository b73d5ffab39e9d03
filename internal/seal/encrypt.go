package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"

	"github.com/picket-dev/picket"
)

// ErrWrongKey is returned for a text that was encrypted with a key that the Sealer
// does not have, or for another place.
var ErrWrongKey = errors.New("it was sealed with another secret key, or for another place")

// Encrypt encrypts a secret that has to be kept in the store, with a key that only
// a holder of the first secret key can make. place names what it belongs to, such as
// "webhook 01J… url". Decrypt needs the same place.
func (s *Sealer) Encrypt(place string, secret picket.Secret) (string, error) {
	box, err := newAEAD(s.keys[0])
	if err != nil {
		return "", err
	}
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // it never fails: the program ends if the system has no randomness
	return base64.RawURLEncoding.EncodeToString(box.Seal(nonce, nonce, []byte(secret), []byte(place))), nil
}

// Decrypt opens what Encrypt has made with any of the keys, for the same place.
// Anything else is ErrWrongKey.
func (s *Sealer) Decrypt(place, wrapped string) (picket.Secret, error) {
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
			return picket.Secret(plain), nil
		}
	}
	return "", ErrWrongKey
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(mac(key, "derive", "wrap"))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
