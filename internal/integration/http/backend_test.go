package http_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// backend is one of the compositions that the middleware runs over.
type backend struct {
	name string
	// crowded backends get the whole crowd. The others get a part of it, to save time.
	crowded bool
	at      func(t testing.TB) settings
}

func sqlite(t testing.TB) settings {
	file := filepath.Join(t.TempDir(), "records.db")
	return settings{
		Driver: "sqlite", Dialect: sqladapter.SQLite,
		DSN: "file:" + file +
			"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)",
	}
}

func postgres(t testing.TB) settings {
	return settings{Driver: "pgx", Dialect: sqladapter.Postgres, DSN: servertest.Postgres(t)}
}

func mariadb(t testing.TB) settings {
	return settings{Driver: "mysql", Dialect: sqladapter.MySQL,
		DSN: servertest.MariaDB(t) + "&interpolateParams=true"}
}

func embeddedRedis(t testing.TB) settings {
	m, _ := redistest.Mini(t)
	return settings{Redis: m.Addr()}
}

func realRedis(t testing.TB) settings { return settings{Redis: servertest.Redis(t)} }

func inTransaction(at func(testing.TB) settings) func(testing.TB) settings {
	return func(t testing.TB) settings {
		s := at(t)
		s.Atomic = true
		return s
	}
}

var (
	memory = backend{"memory", true, func(testing.TB) settings { return settings{} }}
	stores = []backend{
		{"miniredis", false, embeddedRedis}, {"redis", true, realRedis},
		{"sqlite claimed", false, sqlite}, {"sqlite atomic", false, inTransaction(sqlite)},
		{"postgres claimed", false, postgres}, {"postgres atomic", true, inTransaction(postgres)},
		{"mariadb claimed", false, mariadb}, {"mariadb atomic", false, inTransaction(mariadb)},
	}
	// backends are one of each kind, for tests of many rows. MariaDB is the slowest, and is there
	// once.
	backends = slices.DeleteFunc(append([]backend{memory}, stores...), func(b backend) bool {
		return b.name == "mariadb claimed"
	})
)

const (
	day   = 24 * time.Hour
	lease = 30 * time.Second
)

// settle makes the settings of a fixture of the test's own, without opening it.
func (b backend) settle(t testing.TB, window, lease time.Duration) settings {
	t.Helper()
	s := b.at(t)
	s.Prefix, s.Window, s.Lease = servertest.Prefix(t), window, lease
	return s
}

// open makes a fixture of the test's own, and removes it when the test ends.
func (b backend) open(t testing.TB, window, lease time.Duration) *fixture {
	t.Helper()
	return openAt(t, b.settle(t, window, lease))
}

func openAt(t testing.TB, s settings) *fixture {
	t.Helper()
	p, err := s.open(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(p.shut)
	require.NoError(t, p.setUp(t.Context()))
	t.Cleanup(func() {
		assert.NoError(t, p.tearDown(context.WithoutCancel(t.Context())))
	})
	return p
}

// each runs test over backends.
func each(t *testing.T, over []backend, test func(t *testing.T, b backend)) {
	for _, b := range over {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// counts reads the ledger.
func (p *fixture) counts(t testing.TB) map[string]int {
	t.Helper()
	all, err := p.ledger.counts(t.Context())
	require.NoError(t, err)
	return all
}
