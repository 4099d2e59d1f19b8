package sql_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/servertest"
)

// killer ends sessions of the store under test at any point.
type killer struct {
	e     storeEngine
	admin *sql.DB
	// victims lists them; end ends one.
	victims, end string
}

func killers(t *testing.T) []killer {
	t.Helper()
	name := servertest.Prefix(t)
	base := storePostgres("postgres", nil)
	mariadb := storeMariaDB("mariadb", "&interpolateParams=true")
	named := storePostgres("postgres", map[string]string{"application_name": name})
	own := mariadb
	own.dsn = func(t testing.TB) string {
		return strings.Replace(mariadb.dsn(t), "/onceward?", "/"+name+"?", 1)
	}
	return []killer{
		{e: named, admin: openDB(t, base.driver, base.dsn(t)),
			victims: `SELECT pid FROM pg_stat_activity WHERE application_name = '` + name + `'`,
			end:     `SELECT pg_terminate_backend(?)`},
		{e: named.overPgx(), admin: openDB(t, base.driver, base.dsn(t)),
			victims: `SELECT pid FROM pg_stat_activity WHERE application_name = '` + name + `'`,
			end:     `SELECT pg_terminate_backend(?)`},
		{e: own, admin: databaseOf(t, mariadb, name),
			victims: `SELECT id FROM ` + servertest.Processlist + ` WHERE db = '` + name + `'`,
			end:     `KILL ?`},
	}
}

// databaseOf makes a database of its own, so that its sessions can be told apart.
func databaseOf(t *testing.T, e storeEngine, name string) *sql.DB {
	t.Helper()
	admin := openDB(t, e.driver, e.dsn(t))
	_, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.ExecContext(context.WithoutCancel(t.Context()),
			"DROP DATABASE "+name)
		assert.NoError(t, err)
	})
	return admin
}

// run kills one session after the other until ctx ends, and returns how many.
func (k *killer) run(ctx context.Context, t *testing.T) (kills int) {
	for backoff.Sleep(ctx, time.Duration(rand.IntN(int(30*time.Millisecond)))) == nil {
		ids, err := k.list(ctx)
		if err != nil || len(ids) == 0 {
			assert.False(t, err != nil && ctx.Err() == nil, "list sessions: %v", err)
			continue
		}
		victim := ids[rand.IntN(len(ids))]
		if _, err := k.admin.ExecContext(ctx, strings.Replace(k.end, "?", victim, 1)); err == nil {
			kills++ // or else it has gone by itself
		}
	}
	return kills
}

func (k *killer) list(ctx context.Context) (ids []string, err error) {
	rows, err := k.admin.QueryContext(ctx, k.victims)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// passed is a key that one worker after another owns.
type passed struct {
	id       driver.ID
	holders  atomic.Int32
	acquired atomic.Int64
}

// TestStoreKilledSessions: workers claim and release overlapping batches, each in an order
// of its own, while sessions are killed at any time. A request with an unknown outcome is sent
// again with the same token. No two workers ever own the same key, and every claim that was won was
// counted once.
func TestStoreKilledSessions(t *testing.T) {
	const keys, workers, rounds, batch = 60, 8, 40, 25
	for _, k := range killers(t) {
		t.Run(k.e.name, func(t *testing.T) {
			store, _, _ := openStore(t, k.e)
			all := make([]*passed, keys)
			for i := range all {
				all[i] = &passed{id: randomID()}
			}
			ctx, stop := context.WithCancel(t.Context())
			var killing, working sync.WaitGroup
			var kills int
			killing.Go(func() { kills = k.run(ctx, t) })
			var unknown atomic.Int64
			for range workers {
				working.Go(func() {
					// At least until one was killed at work: the killer may be late.
					for n := 0; n < rounds || unknown.Load() == 0 && !t.Failed() &&
						n < 100*rounds; n++ {
						mine := make([]*passed, batch)
						for i, at := range rand.Perm(keys)[:batch] {
							mine[i] = all[at]
						}
						unknown.Add(passOn(t, store, mine))
					}
				})
			}
			working.Wait()
			stop()
			killing.Wait()
			acquired := int64(0)
			for _, p := range all {
				rec := lookupAgain(t, store, p.id)
				assert.Equal(t, p.acquired.Load(), int64(rec.Attempt),
					"%d claims were won, and the last attempt is %d", p.acquired.Load(),
					rec.Attempt)
				acquired += p.acquired.Load()
			}
			assert.NotZero(t, kills)
			assert.NotZero(t, unknown.Load())
			t.Logf("%d kills, %d items unknown at first, %d claims won", kills,
				unknown.Load(), acquired)
		})
	}
}

// passOn claims keys, holds those it gets, and releases them. It returns how many items
// had an unknown outcome at first.
func passOn(t *testing.T, store dedup.Store, keys []*passed) (unknown int64) {
	reqs := make([]driver.ClaimRequest, len(keys))
	for i, p := range keys {
		reqs[i] = driver.ClaimRequest{ID: p.id, Token: randomToken(), Lease: time.Hour,
			Hold: time.Hour}
	}
	answers, n := untilLearnt(t, reqs, store.Claim)
	unknown += n
	var changes []driver.Finish
	for i, a := range answers {
		if a.Outcome != dedup.Acquired {
			continue
		}
		assert.EqualValues(t, 1, keys[i].holders.Add(1), "owners at a time")
		keys[i].acquired.Add(1)
		changes = append(changes, driver.Finish{ID: reqs[i].ID, Token: reqs[i].Token,
			State: driver.StateReleased, Hold: time.Hour})
	}
	for i := range answers { // once a release is on its way, the next owner may come
		if answers[i].Outcome == dedup.Acquired {
			keys[i].holders.Add(-1)
		}
	}
	_, n = untilLearnt(t, changes, store.Finish)
	return unknown + n
}

// untilLearnt sends items, and sends those again whose answer is an error. The rate of kills does
// not depend on the load: on a busy machine a call meets many kills in a row.
func untilLearnt[T any](t *testing.T, items []T,
	send func(context.Context, []T) []driver.Answer) (answers []driver.Answer, unknown int64) {
	answers = make([]driver.Answer, len(items))
	todo := make([]int, len(items))
	for i := range todo {
		todo[i] = i
	}
	for range 20 * maxDeliveries {
		if len(todo) == 0 {
			return answers, unknown
		}
		part := make([]T, len(todo))
		for n, i := range todo {
			part[n] = items[i]
		}
		var left []int
		for n, a := range send(t.Context(), part) {
			if answers[todo[n]] = a; a.Err != nil {
				left = append(left, todo[n])
			}
		}
		unknown += int64(len(left))
		todo = left
	}
	assert.Empty(t, todo, "%d of %d items could not be learnt: %v", len(todo), len(items),
		answers[todo[0]].Err)
	return answers, unknown
}

// lookupAgain reads through connections that may be dead.
func lookupAgain(t *testing.T, store dedup.Store, id driver.ID) dedup.Record {
	t.Helper()
	answers, _ := untilLearnt(t, []driver.ID{id}, store.Lookup)
	return answers[0].Record
}
