package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/integration/internal/commitcut"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/native"
)

// pgxModes are all the ways in which pgx sends a statement.
var pgxModes = []string{"cache_statement", "cache_describe", "describe_exec",
	"exec", "simple_protocol"}

// A cuttable is an engine whose COMMITs can be cut.
type cuttable struct {
	engine
	through func(t *testing.T) (*commitcut.Proxy, *sql.DB)
}

// cuttables are MariaDB, and PostgreSQL in these modes of pgx.
func cuttables(modes []string) []cuttable {
	all := []cuttable{{mariadb(), func(t *testing.T) (*commitcut.Proxy, *sql.DB) {
		c, dsn := commitcut.MySQL(t, servertest.MariaDB(t))
		return c, openDB(t, "mysql", mariadbDSN(t, dsn, nil))
	}}}
	for _, mode := range modes {
		all = append(all, cuttable{postgres(mode), func(t *testing.T) (*commitcut.Proxy, *sql.DB) {
			c, url := commitcut.Postgres(t, servertest.Postgres(t))
			return c, openDB(t, "pgx", postgresURL(t, url, mode))
		}})
	}
	return all
}

// cutIn returns the cut of a round. Over the rounds a reply is torn at each of its 11 or 18 bytes.
func cutIn(round int) commitcut.Cut {
	how := []commitcut.How{commitcut.Lost, commitcut.Torn, commitcut.Late, commitcut.Torn,
		commitcut.Undelivered, commitcut.Torn}[round%6]
	return commitcut.Cut{How: how, Bytes: round/2 + 1}
}

// A method delivers a batch, and repeats until it succeeds. first reports whether the attempt that
// succeeded also ran the effects.
type method struct {
	name string
	size int
	do   func(s *shop, ctx context.Context, batch []string) (first bool, err error)
}

var methods = []method{{"MarkTx", 1, (*shop).byTheBook}, {"Do", 1, (*shop).byDo},
	{"DoBatch", 3, (*shop).byDoBatch}}

// TestCommitCut: COMMIT does not arrive, arrives when its client has gone, or its reply is lost
// or torn at any byte. A caller that then follows the documentation has each effect once,
// whatever error the driver returns.
func TestCommitCut(t *testing.T) {
	all := cuttables(pgxModes)
	sealed := all[1]
	sealed.engine = inGenerations(sealed.engine)
	for _, e := range append(all, sealed) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, e.engine)
			c, db := e.through(t)
			through := *s
			through.db = db
			for _, w := range methods {
				t.Run(w.name, func(t *testing.T) { through.underCuts(t, c, w) })
			}
		})
	}
}

// underCuts cuts the connection in every round, and checks what the caller learns about it.
func (s *shop) underCuts(t *testing.T, c *commitcut.Proxy, w method) {
	var all []string
	before := c.Cuts()
	for round := range cutRounds {
		now := cutIn(round)
		batch := make([]string, w.size)
		for i := range batch {
			batch[i] = fmt.Sprintf("%s %d %d", w.name, round, i)
		}
		all = append(all, batch...)
		c.Arm(now)
		first, err := w.do(s, t.Context(), batch)
		require.NoError(t, err, "round %d, %v: first = %v", round, now.How, first)
		assert.False(t, now.How != commitcut.Torn && first != (now.How == commitcut.Undelivered),
			"round %d, %v: first = %v", round, now.How, first)
	}
	c.WantCuts(t, before+cutRounds)
	lost, doubled := s.damage(t, all)
	assert.Zero(t, lost, "of %d effects", len(all))
	assert.Zero(t, doubled, "of %d effects", len(all))
}

func (s *shop) byTheBook(ctx context.Context, batch []string) (first bool, err error) {
	return s.redeliver(ctx, batch[0])
}

func (s *shop) byDo(ctx context.Context, batch []string) (first bool, err error) {
	mark, err := s.do(ctx, batch[0])
	return mark.First(), err
}

// TestCommitCutInAPipeline: with pgx itself, COMMIT may travel with the effect, in one round
// trip and as a statement like any other.
func TestCommitCutInAPipeline(t *testing.T) {
	for _, mode := range pgxModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, postgres(mode))
			c, url := commitcut.Postgres(t, servertest.Postgres(t))
			p := &pipeline{shop: s, url: postgresURL(t, url, mode)}
			t.Cleanup(func() { p.disconnect(t) })
			s.underCuts(t, c, method{"MarkTx", 1,
				func(_ *shop, ctx context.Context, batch []string) (bool, error) {
					return p.redeliver(ctx, batch[0])
				}})
		})
	}
}

// pipeline sends the effect and COMMIT together.
type pipeline struct {
	*shop
	url  string
	conn *pgx.Conn
}

func (p *pipeline) disconnect(t *testing.T) {
	if p.conn == nil || p.conn.IsClosed() {
		return
	}
	assert.NoError(t, p.conn.Close(context.WithoutCancel(t.Context())))
}

func (p *pipeline) redeliver(ctx context.Context, message string) (first bool, err error) {
	for range maxDeliveries {
		if first, err = p.deliver(ctx, message); err == nil || !sqladapter.Retryable(err) {
			break
		}
	}
	return first, err
}

func (p *pipeline) deliver(ctx context.Context, message string) (first bool, err error) {
	if p.conn == nil || p.conn.IsClosed() {
		if p.conn, err = pgx.Connect(ctx, p.url); err != nil {
			return false, err
		}
	}
	tx, err := p.conn.Begin(ctx)
	if err != nil {
		return false, err
	}
	mark, err := p.marks.MarkTx(ctx, pgxTx{tx}, message)
	if err != nil {
		return false, errors.Join(err, tx.Rollback(ctx))
	}
	var b pgx.Batch
	if mark.First() {
		b.Queue(p.bind(`INSERT INTO `+p.ledger+` (message) VALUES (?)`), message)
	}
	b.Queue("SELECT pg_sleep(0.01)") // the server is still at work when its client goes
	b.Queue("commit")
	return mark.First(), tx.SendBatch(ctx, &b).Close()
}

// pgxTx is a transaction of pgx as sqladapter wants it.
type pgxTx struct{ pgx.Tx }

func (pgxTx) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errors.ErrUnsupported
}

func (t pgxTx) QueryRows(ctx context.Context, query string, args ...any) (native.Rows, error) {
	rows, err := t.Query(ctx, query, args...)
	return pgxRows{rows}, err
}

type pgxRows struct{ pgx.Rows }

func (r pgxRows) Close() error {
	r.Rows.Close()
	return r.Err()
}

// byDoBatch expects that all messages are first, or none.
func (s *shop) byDoBatch(ctx context.Context, batch []string) (first bool, err error) {
	marks, err := s.doBatch(ctx, batch)
	if err != nil {
		return false, err
	}
	other := func(m sqladapter.Mark) bool { return m.Outcome != marks[0].Outcome }
	if slices.ContainsFunc(marks, other) ||
		marks[0].Outcome != dedup.Acquired && marks[0].Outcome != dedup.Duplicate {
		return false, fmt.Errorf("one transaction, and marks %v", marks)
	}
	return marks[0].First(), nil
}
