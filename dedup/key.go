package dedup

import (
	"github.com/onceward/onceward/dedup/internal/keytext"
)

// checkText accepts printable UTF-8 of 1 to limit bytes.
func checkText(field, s string, limit int) error {
	if reason := keytext.Fault(s, limit); reason != "" {
		return &InputError{Field: field, Reason: reason}
	}
	return nil
}

func checkKey(key string) error {
	if reason := keytext.KeyFault(key); reason != "" {
		return &InputError{Field: "Key", Reason: reason}
	}
	return nil
}
