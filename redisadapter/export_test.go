package redisadapter

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter/internal/full"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Key is the name of a record, for tests that look at Redis themselves.
func Key(s *Store, id driver.ID) string { return s.engine.Key(id) }

// Decode reads a record and encodes it again.
func Decode(raw string) (string, error) {
	r, err := wire.DecodeRecord(raw)
	if err != nil {
		return "", err
	}
	return wire.EncodeRecord(&r), nil
}

// Goldens lists the names of all golden records.
func Goldens(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*.hex"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "golden records")
	for i := range files {
		files[i] = strings.TrimSuffix(filepath.Base(files[i]), ".hex")
	}
	return files
}

// Golden reads one of them.
func Golden(t testing.TB, name string) string {
	return redistest.Golden(t, filepath.Join("testdata", "golden", name+".hex"))
}

// SetBreakerClock sets the clock by which a breaker opens and closes.
func SetBreakerClock(s *Store, now func() time.Time) { s.engine.Line.SetClock(now) }

// CanaryKeys are the keys that Init creates.
func CanaryKeys(client redis.UniversalClient, prefix string) []string {
	return guard.NewCanaries(client, prefix).Keys
}

// ParseCanary reads a canary and returns its state.
func ParseCanary(value string) (state string, err error) {
	c, err := guard.ParseCanary(value)
	return c.State, err
}

// Position reads a cursor of List and writes it again.
func Position(s string) (string, error) {
	p, err := wire.ParsePosition(s)
	return p.String(), err
}

// ComeNear makes a store believe that its server is near.
func ComeNear(s *Store) { s.engine.Line.ComeNear() }

// Near reports whether the next small pipeline runs on its caller's goroutine.
func Near(s *Store) bool { return s.engine.Line.Near() }

// Suspect makes a store believe that its server has failed over.
func Suspect(s *Store) { s.engine.Guard.BeSuspicious() }

// Compare sets whether a store with the layout Full may use SET IFEQ for ends.
func Compare(s *Store, yes bool) {
	l, _ := s.engine.Layout.(*full.Layout)
	l.Compare(yes)
}
