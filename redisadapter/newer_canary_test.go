package redisadapter_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/redisadapter"
)

// TestNewerCanary: a later version may report a loss in words that this one does not know. A canary
// that cannot be read closes the store.
func TestNewerCanary(t *testing.T) {
	const epoch = "00112233445566778899aabbccddeeff"
	for value, want := range map[string]string{
		"1 ok " + epoch: "ok", "1 lost " + epoch + " 1700000000000": "lost",
		"2 ok " + epoch: "", "2 lost " + epoch + " 1700000000000": "", "0 ok " + epoch: "",
		"11 ok " + epoch: "", " ok " + epoch: "",
		"1 healed " + epoch: "", "1 ok " + epoch + " more": "",
	} {
		state, err := redisadapter.ParseCanary(value)
		assert.Equal(t, want, state, "%q has state %q, %v; want %q", value, state, err, want)
		assert.Equal(t, want == "", err != nil,
			"%q has state %q, %v; want %q", value, state, err, want)
	}
}
