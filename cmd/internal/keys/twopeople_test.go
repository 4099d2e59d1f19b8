package keys

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
)

// answer is a person who says yes after another thing has happened.
type answer struct {
	before func()
	text   []byte
}

func (a *answer) Read(p []byte) (int, error) {
	if a.before != nil {
		a.before()
		a.before, a.text = nil, []byte("y\n")
	}
	if len(a.text) == 0 {
		return 0, io.EOF
	}
	n := copy(p, a.text)
	a.text = a.text[n:]
	return n, nil
}

// claim claims the key as a worker.
func (r *rig) claim(key string, token driver.Token) (driver.ID, dedup.Record) {
	r.t.Helper()
	id, err := driver.NewID("shop", "", key)
	require.NoError(r.t, err)
	a := r.store.Claim(r.t.Context(),
		[]driver.ClaimRequest{{ID: id, Token: token, Lease: time.Minute, Hold: time.Hour}})[0]
	require.NoError(r.t, a.Err)
	require.Equal(r.t, dedup.Acquired, a.Outcome)
	return id, a.Record
}

// work claims the key and completes it.
func (r *rig) work(key string, token driver.Token) {
	r.t.Helper()
	id, rec := r.claim(key, token)
	c := driver.Finish{ID: id, Token: token, Fence: rec.Fence, Attempt: rec.Attempt,
		State: driver.StateSucceeded, Window: testWindow, Hold: time.Hour}
	a := r.store.Finish(r.t.Context(), []driver.Finish{c})[0]
	require.NoError(r.t, a.Err)
	require.True(r.t, a.Held)
}

// TestTwoPeople: one person answers a question after another one has settled the same key. A key
// that is done must stay done, or its effect runs twice. A worker that has claimed the key must
// keep it: if the key were marked as done, the effect would be lost.
func TestTwoPeople(t *testing.T) {
	for name, on := range map[string]func(*testing.T) *rig{
		"redis": func(t *testing.T) *rig {
			addr := servertest.Redis(t)
			return onRedis(t, redis.NewClient(&redis.Options{Addr: addr}), redisadapter.Full,
				"--redis", "redis://"+addr)
		},
		"postgres": func(t *testing.T) *rig {
			dsn := servertest.Postgres(t)
			return onSQL(t, sqladapter.Postgres, "pgx", dsn, dsn)
		},
		"mariadb": func(t *testing.T) *rig {
			dsn := servertest.MariaDB(t)
			return onSQL(t, sqladapter.MySQL, "mysql", dsn, dsn)
		},
		"sqlite": func(t *testing.T) *rig {
			file := filepath.Join(t.TempDir(), "claims.db")
			return onSQL(t, sqladapter.SQLite, "sqlite",
				"file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)", "sqlite:"+file)
		},
	} {
		t.Run(name, func(t *testing.T) { twoPeople(t, on(t)) })
	}
}

func twoPeople(t *testing.T, r *rig) {
	worker := driver.Token{21}
	for name, test := range map[string]struct {
		command []string
		second  func(key string)
		is      driver.State
	}{
		"released, and on record as done": {
			[]string{"resolve", "--released"}, func(key string) {
				r.wants(cli.Done, "resolve "+key+" --namespace shop --done --window 24h --yes")
			}, driver.StateSucceeded,
		},
		"forgotten, and on record as done": {
			[]string{"forget"}, func(key string) {
				r.wants(cli.Done, "resolve "+key+" --namespace shop --done --window 24h --yes")
			}, driver.StateSucceeded,
		},
		"done, and a worker is at it": {
			[]string{"resolve", "--done", "--window", "24h"}, func(key string) {
				r.wants(cli.Done, "resolve "+key+" --namespace shop --released --yes")
				r.claim(key, worker)
			}, driver.StateInProgress,
		},
		"done, and in doubt anew": {
			[]string{"resolve", "--done", "--window", "24h"}, func(key string) {
				r.wants(cli.Done, "resolve "+key+" --namespace shop --released --yes")
				r.doubt(key)
			}, driver.StateUncertain,
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := "two-" + test.command[0] + test.is.String()
			r.doubt(key)
			first := append(test.command, key, "--namespace", "shop")
			code, out, errOut := r.run(&answer{before: func() { test.second(key) }}, first...)
			assert.Equal(t, cli.No, code, out+errOut)
			assert.Contains(t, errOut, "no longer as it was shown")
			assert.Equal(t, test.is, r.stateOf(key))
			if test.is == driver.StateInProgress {
				id, _ := driver.NewID("shop", "", key)
				a := r.store.Lookup(t.Context(), []driver.ID{id})[0]
				c := driver.Finish{ID: id, Token: worker, Fence: a.Record.Fence,
					Attempt: a.Record.Attempt, State: driver.StateSucceeded, Window: testWindow,
					Hold: time.Hour}
				assert.True(t, r.store.Finish(t.Context(), []driver.Finish{c})[0].Held,
					"the worker has lost its claim")
			}
		})
	}
	t.Run("forgotten, and done anew", func(t *testing.T) {
		r.work("again", driver.Token{22})
		code, out, errOut := r.run(&answer{before: func() {
			r.wants(cli.Done, "forget again --namespace shop --yes")
			r.work("again", driver.Token{23})
		}}, "forget", "again", "--namespace", "shop")
		assert.Equal(t, cli.No, code, out+errOut)
		assert.Equal(t, driver.StateSucceeded, r.stateOf("again"))
	})
}
