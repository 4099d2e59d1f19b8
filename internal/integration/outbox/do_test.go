package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// shop is a ledger and a table of effects next to an outbox.
type shop struct {
	*house
	ledger  *sqladapter.Ledger
	effects string
}

func newShop(t *testing.T, e engine) *shop {
	t.Helper()
	s := &shop{house: newHouse(t, e)}
	s.effects = s.table + "_effects"
	ledger, err := sqladapter.New(sqladapter.Config{
		Dialect: map[outbox.Dialect]sqladapter.Dialect{outbox.Postgres: sqladapter.Postgres,
			outbox.MySQL: sqladapter.MySQL, outbox.SQLite: sqladapter.SQLite}[e.dialect],
		Namespace: "shop", Table: servertest.Prefix(t) + "_marks",
	})
	require.NoError(t, err)
	require.NoError(t, ledger.Migrate(t.Context(), s.db))
	s.ledger = ledger
	s.exec(t, `CREATE TABLE `+s.effects+` (name VARCHAR(80) NOT NULL)`)
	t.Cleanup(func() {
		s.exec(t, `DROP TABLE `+s.effects)
		assert.NoError(t, ledger.Migrations().To(context.Background(), s.db, 0))
	})
	return s
}

// insertEffect is the statement of an effect. Names have no quotes.
func (s *shop) insertEffect(name string) string {
	return `INSERT INTO ` + s.effects + ` (name) VALUES ('` + name + `')`
}

// do runs the effect of key i of a name, with its message.
func (s *shop) do(ctx context.Context, db *sql.DB, name string, i int) (sqladapter.Mark, error) {
	return doIn(ctx, s, s.ledger, db, name, i)
}

func doIn[DB any, T outbox.Tx](
	ctx context.Context, s *shop,
	ledger outbox.Ledger[DB, T, sqladapter.Mark, dedup.Option], db DB, name string, i int,
) (sqladapter.Mark, error) {
	m := numbered(name, i)
	return outbox.Do(ctx, s.box, ledger, db, m.ID,
		func(ctx context.Context, tx T) ([]outbox.Message, error) {
			_, err := tx.ExecContext(ctx, s.insertEffect(m.ID))
			return []outbox.Message{m}, err
		})
}

// wantOnce checks that each key has one effect, and that its message was published once.
func (s *shop) wantOnce(t *testing.T, b *broker, committed map[string]int) {
	t.Helper()
	s.drained(t)
	want := 0
	for _, n := range committed {
		want += n
	}
	var all, distinct int
	require.NoError(t, s.db.QueryRowContext(t.Context(),
		`SELECT count(*), count(DISTINCT name) FROM `+s.effects).Scan(&all, &distinct))
	assert.Equal(t, []int{want, want}, []int{all, distinct}, "effects, and their keys")
	got, _ := b.got()
	assert.Equal(t, tally{}, judge(got, committed))
	assert.Len(t, got, want)
}

// The record, the effect and the message are there together, or not at all. A duplicate inserts
// nothing. The relay, which polls once in an hour, is woken.
func TestDo(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		b := newBroker()
		start(t, s.relay(t, b, func(c *outbox.RelayConfig) {
			c.PollMin, c.PollMax = time.Hour, time.Hour
		}))
		for i := range 3 {
			for try := range 2 {
				mark, err := s.do(t.Context(), s.db, "a", i)
				require.NoError(t, err)
				assert.Equal(t, try == 0, mark.First())
			}
			b.wait(t, i+1)
		}
		_, err := outbox.Do(t.Context(), s.box, s.ledger, s.db, "refused",
			func(ctx context.Context, tx *sql.Tx) ([]outbox.Message, error) {
				_, err := tx.ExecContext(ctx, s.insertEffect("refused"))
				return []outbox.Message{{Topic: "no such topic"}}, err
			})
		var input *outbox.InputError
		require.ErrorAs(t, err, &input)
		assert.Equal(t, "messages[0].Topic", input.Field)
		s.wantOnce(t, b, map[string]int{"a": 3})
	})
}

func TestDoWithPgx(t *testing.T) {
	s := newShop(t, postgres())
	pool, err := pgxpool.New(t.Context(), s.dsn)
	require.NoError(t, err)
	defer pool.Close()
	b := newBroker()
	start(t, s.relay(t, b))
	for i := range 3 {
		for try := range 2 {
			mark, err := doIn(t.Context(), s, pgxv5.Ledger{Ledger: s.ledger}, pool, "a", i)
			require.NoError(t, err)
			assert.Equal(t, try == 0, mark.First())
		}
	}
	s.wantOnce(t, b, map[string]int{"a": 3})
}

// killer is a ledger whose connection is killed at a step of the transaction, the first time.
type killer struct {
	*sqladapter.Ledger
	s      *shop
	before bool // it is killed between the record and the effect, or after the messages
	killed bool
}

func (k *killer) Do(ctx context.Context, db *sql.DB, key string,
	effect func(ctx context.Context, tx *sql.Tx) error, opts ...dedup.Option,
) (sqladapter.Mark, error) {
	return k.Ledger.Do(ctx, db, key, func(ctx context.Context, tx *sql.Tx) error {
		first := !k.killed
		k.killed = true
		if first && k.before {
			if err := k.s.kill(ctx, tx); err != nil {
				return err
			}
		}
		if err := effect(ctx, tx); err != nil {
			return err
		}
		if first && !k.before {
			return k.s.kill(ctx, tx)
		}
		return nil
	}, opts...)
}

// kill ends the session of a transaction.
func (s *shop) kill(ctx context.Context, tx *sql.Tx) error {
	ask, end := `SELECT pg_backend_pid()`, `SELECT pg_terminate_backend(%d, 5000)`
	if s.e.dialect == outbox.MySQL {
		ask, end = `SELECT CONNECTION_ID()`, `KILL CONNECTION %d`
	}
	var id int64
	if err := tx.QueryRowContext(ctx, ask).Scan(&id); err != nil {
		return err
	}
	_, err := s.db.ExecContext(ctx, fmt.Sprintf(end, id))
	return err
}

// The session dies between record and effect, between effect and messages, or between messages and
// COMMIT; the same key is asked for by several callers at a time.
func TestDoIsKilled(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		b := newBroker()
		start(t, s.relay(t, b))
		const keys, each = 8, 12
		committed := map[string]int{}
		var callers sync.WaitGroup
		for key := range keys {
			name := fmt.Sprint("k", key)
			committed[name] = each
			callers.Go(func() {
				for i := range each {
					s.killedDo(t, name, i)
				}
			})
		}
		callers.Wait()
		s.wantOnce(t, b, committed)
	})
}

func (s *shop) killedDo(t *testing.T, name string, i int) {
	m := numbered(name, i)
	step := rand.IntN(3)
	killed := false
	k := &killer{Ledger: s.ledger, s: s, before: step == 0, killed: step == 1}
	for try := range 20 {
		_, err := outbox.Do(t.Context(), s.box, k, s.db, m.ID,
			func(ctx context.Context, tx *sql.Tx) ([]outbox.Message, error) {
				_, err := tx.ExecContext(ctx, s.insertEffect(m.ID))
				if err == nil && step == 1 && !killed {
					killed = true
					err = s.kill(ctx, tx)
				}
				return []outbox.Message{m}, err
			})
		if err == nil {
			return
		}
		t.Logf("%s, try %d: %v", m.ID, try, err)
	}
	t.Errorf("%s fails each time", m.ID)
}
