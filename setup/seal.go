package setup

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// sealInfo separates this use of the keys from any other (RFC 9180, 5.1).
const sealInfo = "muster setup bundle 1"

func suite() (hpke.KEM, hpke.KDF, hpke.AEAD) {
	return hpke.DHKEM(ecdh.X25519()), hpke.HKDFSHA256(), hpke.AES256GCM()
}

// GenerateKey makes the key pair that a machine announces, anew at each boot.
// Both halves are 32 bytes.
func GenerateKey() (private, public []byte, err error) {
	kem, _, _ := suite()
	k, err := kem.GenerateKey()
	if err != nil {
		return nil, nil, fmt.Errorf("making this boot's key: %w", err)
	}
	private, err = k.Bytes()
	return private, k.PublicKey().Bytes(), err
}

// EncodePublicKey spells a public key as an announcement carries it.
func EncodePublicKey(public []byte) string { return base64.StdEncoding.EncodeToString(public) }

// ParsePublicKey reads a public key as an announcement carries it. Anything
// that could not have come from GenerateKey is refused.
func ParsePublicKey(s string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != 32 || len(s) != base64.StdEncoding.EncodedLen(32) {
		return nil, errors.New("the announced public key is not 32 bytes in base64")
	}
	if _, err := Seal(b, Bundle{}); err != nil { // points of small order show only in use
		return nil, errors.New("the announced public key is not a usable X25519 key")
	}
	return b, nil
}

// Seal encrypts a bundle so that only the holder of the private key that
// belongs to public can read it (RFC 9180 base mode: X25519, HKDF-SHA256,
// AES-256-GCM).
func Seal(public []byte, b Bundle) ([]byte, error) {
	kem, kdf, aead := suite()
	pk, err := kem.NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("the machine's public key cannot be used: %w", err)
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encoding the setup bundle: %w", err)
	}
	sealed, err := hpke.Seal(pk, kdf, aead, []byte(sealInfo), text)
	if err != nil {
		return nil, fmt.Errorf("sealing the setup bundle: %w", err)
	}
	return sealed, nil
}

// Open decrypts a bundle. That it opens says that it was meant for this boot of
// this machine, not who sealed it.
func Open(private, sealed []byte) (Bundle, error) {
	kem, kdf, aead := suite()
	var b Bundle
	k, err := kem.NewPrivateKey(private)
	if err != nil {
		return b, errors.New("this boot's private key cannot be used; restart the machine and approve again")
	}
	text, err := hpke.Open(k, kdf, aead, []byte(sealInfo), sealed)
	if err != nil {
		return b, errors.New("the setup bundle was not sealed for this boot of this machine; approve its setup again")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return Bundle{}, errors.New("the setup bundle does not have the shape this host knows; use an image of the control plane's version")
	}
	return b, nil
}
