package kafka_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/sqladapter"
)

// fencedShop is a scene whose members write the effects of a range, and move the fence, in one
// transaction. Messages have no records, and the table of effects has no constraint.
type fencedShop struct {
	*scene
	db      *sql.DB
	fence   *sqladapter.Fence
	effects string // the table
	insert  string
	ranges  atomic.Int64
	largest atomic.Int64
	cutOff  atomic.Int64 // ranges that the fence has shortened
}

// eachFence runs a scenario on every flavor, and on every database that is there.
func eachFence(t *testing.T, scenario func(t *testing.T, s *fencedShop)) {
	t.Helper()
	for _, f := range append(flavors, franzFlavors...) {
		for dialect, open := range map[sqladapter.Dialect]func(*testing.T) *sql.DB{
			sqladapter.SQLite: func(t *testing.T) *sql.DB {
				return openSQLite(t, "file:"+filepath.Join(t.TempDir(), "ledger.db")+
					"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate")
			},
			sqladapter.Postgres: func(t *testing.T) *sql.DB {
				db, err := sql.Open("pgx", servertest.Postgres(t))
				require.NoError(t, err)
				t.Cleanup(func() { _ = db.Close() })
				return db
			},
		} {
			t.Run(f.name+"/"+dialect.String(), func(t *testing.T) {
				t.Parallel()
				scenario(t, newFencedShop(t, f, dialect, open(t)))
			})
		}
	}
}

func newFencedShop(t *testing.T, f flavor, dialect sqladapter.Dialect, db *sql.DB) *fencedShop {
	t.Helper()
	name := servertest.Prefix(t)
	s := &fencedShop{scene: f.scene(t, 1, 2), db: db, effects: name + "_effects"}
	s.insert = `INSERT INTO ` + s.effects + ` (id, key, part, pos) VALUES (?, ?, ?, ?)`
	if dialect == sqladapter.Postgres {
		s.insert = strings.Replace(s.insert, `?, ?, ?, ?`, `$1, $2, $3, $4`, 1)
	}
	var err error
	s.fence, err = sqladapter.NewFence(sqladapter.FenceConfig{Dialect: dialect,
		Group: sceneGroup, Table: name + "_fence"})
	require.NoError(t, err)
	require.NoError(t, s.fence.Migrate(t.Context(), db))
	s.exec(`CREATE TABLE ` + s.effects +
		` (id TEXT NOT NULL, key TEXT NOT NULL, part INTEGER NOT NULL, pos BIGINT NOT NULL)`)
	t.Cleanup(func() {
		s.exec(`DROP TABLE ` + s.effects)
		assert.NoError(t, s.fence.Migrations().To(context.WithoutCancel(t.Context()), db, 0))
	})
	s.records = s.missing
	return s
}

func (s *fencedShop) exec(query string) {
	s.t.Helper()
	_, err := s.db.ExecContext(context.WithoutCancel(s.t.Context()), query)
	assert.NoError(s.t, err, query)
}

// missing implements records: a message's effect counts as its record.
func (s *fencedShop) missing(ids []string) (missing []string) {
	there := map[string]bool{}
	for _, e := range s.load() {
		there[e.id] = true
	}
	for _, id := range ids {
		if !there[id] {
			missing = append(missing, id+" has had no effect")
		}
	}
	return missing
}

// load reads the committed effects.
func (s *fencedShop) load() (all []effect) {
	rows, err := s.db.QueryContext(context.Background(),
		`SELECT id, key, part, pos FROM `+s.effects)
	if err != nil {
		return nil // the scene is over
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var e effect
		if err := rows.Scan(&e.id, &e.key, &e.partition, &e.offset); err != nil {
			return nil
		}
		all = append(all, e)
	}
	if rows.Err() != nil {
		return nil
	}
	return all
}

// fenceMoments are hooks of a test. Each may be nil.
type fenceMoments struct {
	// before the transaction, which gets the context that it returns
	before func(ctx context.Context) context.Context
	inside func(link *mortal) // between the effects and their commit
	after  func()             // between the commit and Kafka
}

func (s *fencedShop) joinFenced(at fenceMoments) *member {
	s.t.Helper()
	return s.join(nil, func(mc *memberConfig) {
		link := mc.link
		mc.Unclaimed = true
		mc.Handler, mc.Order, mc.Tuning.BatchMax = nil, kafkaadapter.ByPartition, 16
		mc.RangeHandler = func(ctx context.Context, r *kafkaadapter.Range) error {
			return s.handle(ctx, link, at, r)
		}
	})
}

func (s *fencedShop) handle(ctx context.Context, link *mortal, at fenceMoments,
	r *kafkaadapter.Range) error {
	if at.before != nil {
		ctx = at.before(ctx)
	}
	p := sqladapter.Position{Topic: r.Topic, TopicID: r.TopicID, Partition: r.Partition}
	found, err := s.fence.Do(ctx, s.db, p, r.From, r.To,
		func(ctx context.Context, tx *sql.Tx, start int64) error {
			for _, m := range r.Since(start) {
				if _, err := tx.ExecContext(ctx, s.insert, m.ID, string(m.Key), m.Partition,
					m.Offset); err != nil {
					return err
				}
			}
			if at.inside != nil {
				at.inside(link)
			}
			done, alive := link.reach()
			defer done()
			if !alive {
				return errDead
			}
			return nil
		})
	if err != nil {
		return err
	}
	s.ranges.Add(1)
	s.largest.Store(max(s.largest.Load(), r.To-r.From))
	if found.Start > r.From {
		s.cutOff.Add(1)
	}
	if at.after != nil {
		at.after()
	}
	return nil
}

// wantOnce requires one effect of each of n messages on each partition, and the commit of all.
func (s *fencedShop) wantOnce(n int) {
	s.t.Helper()
	count := map[string]int{}
	all := s.load()
	for _, e := range all {
		count[e.id]++
	}
	for i := range n {
		for p := range int32(2) {
			id := fmt.Sprintf("%d/%s", p, idOf(i))
			assert.Equal(s.t, 1, count[id], "effects of %s", id)
		}
	}
	assert.Len(s.t, all, 2*n, "effects")
	assert.GreaterOrEqual(s.t, s.largest.Load(), int64(2), "there was no range of several messages")
	s.wantNothingLeft()
}

// A member dies inside a transaction, or after its commit and before it commits to Kafka. The next
// member gets everything again, and has only those effects that are missing.
func TestFenceCrash(t *testing.T) {
	for name, after := range map[string]bool{"inside": false, "after the commit": true} {
		t.Run(name, func(t *testing.T) {
			eachFence(t, func(t *testing.T, s *fencedShop) { fenceCrash(t, s, after) })
		})
	}
}

func fenceCrash(t *testing.T, s *fencedShop, after bool) {
	const n = 120
	// everything is delivered again
	refused := s.cluster.Fault(commitFault(kerr.NotCoordinator, -1))
	var inside atomic.Int64
	reached, crashed := make(chan string, 1), make(chan struct{})
	crash := sync.OnceFunc(func() { reached <- "here" })
	var at fenceMoments
	if after {
		at.after = func() {
			if inside.Add(1) > 3 {
				crash()
				<-crashed
			}
		}
	} else {
		at.inside = func(link *mortal) {
			if inside.Add(1) > 3 {
				link.kill()
				crash()
			}
		}
	}
	first := s.joinFenced(at)
	for half := range 4 { // several ranges
		s.produceSome(half*n/4, n/4)
	}
	waitFor(t, reached, "the member did not get so far")
	first.crash()
	close(crashed)
	second := s.joinFenced(fenceMoments{})
	eventually(t, 20*time.Second, func() (bool, string) {
		return s.cutOff.Load() > 0, "the fence has cut nothing off"
	})
	refused.Remove()
	s.wantCommittedToEnd(30 * time.Second)
	second.leave(t)
	s.wantOnce(n)
}

// produceSome sends messages of five keys to each partition.
func (s *fencedShop) produceSome(from, n int) {
	var all []record
	for i := from; i < from+n; i++ {
		for p := range int32(2) {
			all = append(all, record{id: fmt.Sprintf("%d/%s", p, idOf(i)), partition: p,
				key: fmt.Sprint(i % 5), value: []byte("x")})
		}
	}
	s.produce(all...)
}

// Members come and go while messages arrive.
func TestFenceRebalance(t *testing.T) {
	eachFence(t, func(t *testing.T, s *fencedShop) {
		const n, parts = 200, 5
		var all []*member
		for i := range parts {
			all = append(all, s.joinFenced(fenceMoments{}))
			s.produceSome(i*n/parts, n/parts)
			if i >= 2 {
				all[i-2].leave(t)
			}
		}
		s.wantCommittedToEnd(30 * time.Second)
		for _, m := range all[parts-2:] {
			m.leave(t)
		}
		s.wantOnce(n)
	})
}

// A member is cut off from Kafka before the transaction of a range. It continues when another
// member has done everything.
func TestFenceZombie(t *testing.T) {
	eachFence(t, func(t *testing.T, s *fencedShop) {
		const n = 60
		held, thaw := make(chan string, 1), make(chan struct{})
		hold := sync.OnceFunc(func() { held <- "here" })
		s.produceSome(0, n)
		frozen := s.joinFenced(fenceMoments{before: func(ctx context.Context) context.Context {
			hold()
			<-thaw
			return context.WithoutCancel(ctx) // it ignores that its context ends
		}})
		waitFor(t, held, "the member was given nothing")
		frozen.dialer.cut()
		heir := s.joinFenced(fenceMoments{})
		s.wantCommittedToEnd(30 * time.Second)
		close(thaw)
		eventually(t, 20*time.Second, func() (bool, string) {
			return s.cutOff.Load() > 0, "the zombie's range was not cut off"
		})
		frozen.crash()
		heir.leave(t)
		s.wantOnce(n)
	})
}
