package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/integration/internal/commitcut"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

const idTimeWave = 500 // messages

// trial is a shop whose keys carry their time, on a server of its own. Its programs go through a
// cutter; the shop itself does not.
type trial struct {
	*shop
	gun     gun
	cutter  *commitcut.Proxy
	through *sql.DB
	pool    *pgxpool.Pool // of pgx, or nil

	armed, walked, disturbed int
	deleted                  int64
}

func newTrial(t *testing.T, field battlefield, overPgx bool) *trial {
	t.Helper()
	server := servertest.Private(t, field.kind)
	e := field.engine(server.Addr)
	s := newWalkOf(t, e, withUUIDv7)
	tr := &trial{shop: s, gun: gun{field: field, server: server, admin: e.open(t),
		rng: rand.New(rand.NewPCG(8, 0))}}
	if e.dialect == sqladapter.MySQL {
		cutter, dsn := commitcut.MySQL(t, server.Addr)
		tr.cutter, tr.through = cutter, openDB(t, "mysql", mariadbDSN(t, dsn, nil))
		return tr
	}
	var through string
	tr.cutter, through = commitcut.Postgres(t, server.Addr)
	if overPgx {
		u, err := url.Parse(postgresURL(t, through, "cache_statement"))
		require.NoError(t, err)
		tr.pool = openPool(t, u.String())
		return tr
	}
	tr.through = openDB(t, "pgx", postgresURL(t, through, "cache_statement"))
	return tr
}

// at returns how programs at an isolation level deliver a batch.
func (tr *trial) at(t *testing.T, level sql.IsolationLevel) func(context.Context, int,
	[]string) error {
	s := *tr.shop
	s.db, s.level = tr.through, level
	s.marks = tr.ledgerOf(t, func(c *sqladapter.Config) {
		c.Table, c.IDTime, c.Window, c.Isolation = tr.table, sqladapter.UUIDv7, walkWindow, level
	})
	if tr.pool == nil {
		return s.atomic
	}
	return func(ctx context.Context, _ int, batch []string) error {
		_, err := pgxv5.DoBatch(ctx, s.marks, tr.pool, batch,
			func(ctx context.Context, tx pgx.Tx, first []int) error {
				_, err := tx.Exec(ctx, `INSERT INTO `+s.ledger+` SELECT unnest($1::text[])`,
					pick(batch, first))
				return err
			})
		return err
	}
}

// disturbances change where marks are, and what a walk or a duplicate meets.
func (tr *trial) disturbances() []string {
	table := `"` + tr.table + `"`
	if tr.dialect == sqladapter.MySQL {
		// Not OPTIMIZE TABLE: statements of MariaDB that hold row locks wait for it, and the server
		// does not see the deadlock. The UPDATE changes marks that the walk is about to delete.
		return []string{`UPDATE ` + table + ` SET created_at = created_at + 1 ORDER BY id LIMIT 100`}
	}
	return []string{`VACUUM ` + table, `CLUSTER ` + table + ` USING "` + tr.table + `_pkey"`,
		`UPDATE ` + table + ` SET stamp = stamp + 1 WHERE ctid IN (SELECT ctid FROM ` + table +
			` ORDER BY random() LIMIT 200)`}
}

// trouble cuts COMMITs, kills sessions, moves rows and walks, until it is told to stop. Once it
// brings the server down.
func (tr *trial) trouble(t *testing.T, stop <-chan struct{}, halfway <-chan struct{}) {
	ctx := t.Context()
	pause := time.NewTicker(fireEvery)
	defer pause.Stop()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-halfway:
			halfway = nil
			tr.gun.field.crashes[0](tr.gun.server)
			tr.gun.server.Start(1)
		case <-pause.C:
		}
		tr.cutter.Arm(cutIn(n))
		tr.armed++
		if n%4 == 0 {
			tr.gun.shoot(t, 1)
		}
		if n%8 == 4 {
			all := tr.disturbances()
			if _, err := tr.db.ExecContext(ctx, all[tr.disturbed%len(all)]); err == nil {
				tr.disturbed++
			}
		}
		deleted, err := tr.marks.DeleteExpired(ctx, tr.db, 100)
		if tr.deleted += deleted; err == nil {
			tr.walked++
		}
	}
}

// TestIDTimeExact: ids that carry their time, under cut and lost COMMITs, kills, a crash of the
// server, VACUUM, CLUSTER and updates, with retention at work, at every isolation level. Every
// message has its effect once and its mark once, and old marks alone are deleted.
func TestIDTimeExact(t *testing.T) {
	fields := battlefields()
	for _, tt := range []struct {
		name    string
		field   battlefield
		overPgx bool
	}{{"postgres", fields[0], false}, {"postgres over pgx", fields[0], true},
		{"mariadb", fields[1], false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // each has a server of its own
			tr := newTrial(t, tt.field, tt.overPgx)
			if tt.field.kind == servertest.KindMariaDB {
				tr.idsAged(t, 10_000, walkWindow+time.Hour)
			} else {
				tr.marksAged(t, 10_000, walkWindow+time.Hour)
			}
			// The walk deletes only after it has seen a new mark, from which ages count back. On
			// a busy machine it might pass all marks before the first message is marked.
			first := uuid7(time.Now(), 0)
			require.NoError(t, tr.atomic(t.Context(), 0, []string{first}))
			stop, halfway := make(chan struct{}), make(chan struct{})
			var troubles sync.WaitGroup
			troubles.Go(func() { tr.trouble(t, stop, halfway) })
			end := sync.OnceFunc(func() { close(stop); troubles.Wait() })
			defer end()
			all, failed := tr.waves(t, halfway)
			all = append(all, first)
			end()
			lost, doubled := tr.damage(t, all)
			t.Logf("%d effects, %d lost, %d doubled; %d deliveries failed, %d COMMITs cut of %d, "+
				"%d sessions killed, %d times rows moved, %d walks, %d old marks deleted",
				len(all), lost, doubled, failed, tr.cutter.Cuts(), tr.armed, tr.gun.killed,
				tr.disturbed, tr.walked, tr.deleted)
			assert.Zero(t, lost)
			assert.Zero(t, doubled)
			assert.Len(t, tr.effects(t), len(all))
			// Marks that the walk has passed before it saw the first new one, from which ages count
			// back, are deleted in its next pass.
			tr.pass(t, 1.25)
			tr.pass(t, 1.25)
			old, young := tr.older(t, walkWindow)
			assert.Zero(t, old, "old marks")
			assert.Equal(t, len(all), young, "marks of %d messages", len(all))
			assert.Positive(t, failed)
			assert.Positive(t, tr.cutter.Cuts())
			assert.Positive(t, tr.gun.killed)
			assert.Positive(t, tr.disturbed)
			assert.Positive(t, tr.deleted)
		})
	}
}

// waves deliver all messages, each to every worker, one level after the other.
func (tr *trial) waves(t *testing.T, halfway chan<- struct{}) (all []string, failed int64) {
	var made atomic.Int64
	for wave := range idTimeMessages / idTimeWave {
		messages := make([]string, idTimeWave)
		for i := range messages {
			messages[i] = uuid7(time.Now(), int(made.Add(1)))
		}
		all = append(all, messages...)
		if wave == idTimeMessages/idTimeWave/2 {
			close(halfway)
		}
		tried := levels(tr.dialect)
		met := workerPool{workers: 4, batch: 50, deliver: tr.at(t, tried[wave%len(tried)])}.run(t,
			slices.Clone(messages), uint64(wave))
		failed += met.failed.Load()
	}
	return all, failed
}

// TestIDTimeCommitCut: every way to mark, under every cut of TestCommitCut, with a key alone and in
// a batch.
func TestIDTimeCommitCut(t *testing.T) {
	for _, e := range cuttables(someModes) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, e.engine, withUUIDv7)
			c, db := e.through(t)
			through := *s
			through.db = db
			n := 0
			for _, w := range methods {
				var all []string
				for round := range cutRounds {
					now := cutIn(round)
					batch := make([]string, w.size)
					for i := range batch {
						n++
						batch[i] = uuid7(time.Now(), n)
					}
					all = append(all, batch...)
					c.Arm(now)
					first, err := w.do(&through, t.Context(), batch)
					require.NoError(t, err, "%s, round %d, %v", w.name, round, now.How)
					if now.How != commitcut.Torn {
						assert.Equal(t, now.How == commitcut.Undelivered, first,
							fmt.Sprint(w.name, round))
					}
				}
				lost, doubled := s.damage(t, all)
				assert.Zero(t, lost+doubled, "%s, of %d", w.name, len(all))
			}
		})
	}
}
