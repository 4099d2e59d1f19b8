package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
)

// maxSignatures bounds how many signatures of one message are compared: a sender that rotates its
// secrets sends two or three.
const maxSignatures = 16

// strictBase64 accepts only one encoding of each signature.
var strictBase64 = base64.StdEncoding.Strict()

// macs checks HMACs by any of several secrets, so that a secret can be rotated.
type macs struct {
	hash    func() hash.Hash
	secrets [][]byte
}

// newMACs uses the secrets as they are.
func newMACs(setting secretSetting, secrets []string) (macs, error) {
	m := macs{hash: sha256.New}
	if len(secrets) == 0 {
		return m, setting.none()
	}
	for i, secret := range secrets {
		if secret == "" {
			return m, setting.empty(i, len(secrets))
		}
		m.secrets = append(m.secrets, []byte(secret))
	}
	return m, nil
}

// sum returns the HMAC of the concatenated parts.
func (m *macs) sum(secret []byte, parts ...[]byte) []byte {
	mac := hmac.New(m.hash, secret)
	for _, p := range parts {
		mac.Write(p)
	}
	return mac.Sum(nil)
}

// match reports whether one of the signatures was made with one of the secrets. It compares all of
// them, each in constant time.
func (m *macs) match(signatures [][]byte, parts ...[]byte) bool {
	if len(signatures) == 0 || len(signatures) > maxSignatures {
		return false
	}
	found := false
	for _, secret := range m.secrets {
		want := m.sum(secret, parts...)
		for _, s := range signatures {
			if hmac.Equal(s, want) {
				found = true
			}
		}
	}
	return found
}
