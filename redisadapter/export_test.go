package redisadapter

import (
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// Key is the name of a record, for tests that look at Redis themselves.
func Key(s *Store, id dedup.ID) string { return s.key(id) }

// Decode reads a record and returns it as Go would write it.
func Decode(raw string) (string, error) {
	r, err := decodeRecord(raw)
	if err != nil {
		return "", err
	}
	return encodeRecord(&r), nil
}

// Goldens lists the names of all golden records.
func Goldens() []string { return slices.Sorted(maps.Keys(goldens)) }

// Golden reads a record from testdata: hexadecimal, with a comment on every field.
func Golden(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "golden", name+".hex"))
	require.NoError(t, err)
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.TrimSpace(line))
	}
	b, err := hex.DecodeString(digits.String())
	require.NoError(t, err, "%s", name)
	return string(b)
}

// SetBreakerClock lets a test move the time by which a breaker opens and closes.
func SetBreakerClock(s *Store, now func() time.Time) { s.breaker.now = now }

// CanaryKeys are the keys that Init creates.
func CanaryKeys(client redis.UniversalClient, prefix string) []string {
	return newCanaries(client, prefix).keys
}

// ParseCanary reads a canary and returns its state.
func ParseCanary(value string) (state string, err error) {
	c, err := parseCanary(value)
	return c.state, err
}

// Position reads a cursor of List and writes it again.
func Position(s string) (string, error) {
	p, err := parsePosition(s)
	return p.String(), err
}

// ComeNear makes a store take its server for near.
func ComeNear(s *Store) { s.near.trip.Store(int64(nearTrip / 20)) }

// Near reports whether the next small pipeline runs on its caller's goroutine.
func Near(s *Store) bool { return s.near.may() }

// Suspect has a store believe that its server has failed over.
func Suspect(s *Store) { s.guard.beSuspicious() }
