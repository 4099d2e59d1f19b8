package sql_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/sqladapter"
)

// recipe is a published way to have effects once. Each does damage in its own way.
type recipe struct {
	name string
	// unique says whether the ids in its table are unique.
	unique bool
	// onlyPostgres says that the other databases do not have its statement.
	onlyPostgres bool
	// oneByOne delivers messages singly and in the same order, as a burst of redeliveries.
	oneByOne bool
	// messages is how many messages surely show the damage. Default: 2000.
	messages int
	deliver  func(s *shop, table string) func(ctx context.Context, worker int,
		batch []string) error
	doubles, deadlocks bool
}

// together lets no worker begin before all of them have come. Otherwise, on a slow machine, one
// worker may finish everything before another has a connection, and then the worst recipe does no
// damage.
type together struct {
	missing atomic.Int64
	all     chan struct{}
}

func newTogether(workers int) *together {
	tg := &together{all: make(chan struct{})}
	tg.missing.Store(int64(workers))
	return tg
}

func (tg *together) wait(ctx context.Context) {
	if tg.missing.Add(-1) == 0 {
		close(tg.all)
	}
	select {
	case <-tg.all:
	case <-ctx.Done():
	}
}

var recipes = []recipe{
	{name: "check then insert", deliver: checkThenInsert, doubles: true},
	{name: "insert after the effect", unique: true, deliver: insertAfter, doubles: true},
	{name: "one statement, one snapshot", unique: true, onlyPostgres: true, oneByOne: true,
		messages: 300, deliver: oneStatement, doubles: true},
	{name: "batches as they come", unique: true, deliver: unsorted, deadlocks: true},
}

// TestRecipes: the workers of TestOverlappingBatches and TestUnderFire see the damage of each
// recipe, even when no server crashes.
func TestRecipes(t *testing.T) {
	for _, e := range concurrentEngines() {
		for _, r := range recipes {
			if r.onlyPostgres && e.dialect != sqladapter.Postgres {
				continue
			}
			t.Run(e.name+"/"+r.name, func(t *testing.T) {
				s, all := newShop(t, e), messages(cmp.Or(r.messages, 2000))
				met := r.pool(t, s).run(t, all, 5)
				lost, doubled := s.damage(t, all)
				t.Logf("of %d messages %d lost, %d doubled; %d deadlocks", len(all), lost,
					doubled, met.deadlocks.Load())
				assert.Zero(t, lost, "want 0 lost, doubled")
				assert.Equal(t, r.doubles, doubled > 0, "want 0 lost, doubled")
				assert.Equal(t, r.deadlocks, met.deadlocks.Load() > 0, "want 0 lost, doubled")
			})
		}
	}
}

// pool makes the table that the recipe keeps.
func (r recipe) pool(t *testing.T, s *shop) workerPool {
	t.Helper()
	table := s.ledger + "_seen"
	s.exec(t, `CREATE TABLE `+table+` (id varchar(64) NOT NULL, owner varchar(64))`)
	t.Cleanup(func() { s.exec(t, `DROP TABLE `+table) })
	if r.unique {
		s.exec(t, `CREATE UNIQUE INDEX `+table+`_id ON `+table+` (id)`)
	}
	c := byTheBatch(r.deliver(s, table))
	if r.oneByOne {
		c.batch, c.sameOrder = 1, true
	}
	return c
}

// concurrentEngines are the engines on which several transactions write at a time.
func concurrentEngines() []engine {
	return []engine{postgres("cache_statement"), mariadb()}
}

// checkThenInsert reads whether an id is in the table, and then inserts it. Two transactions that
// read at the same time both find nothing.
func checkThenInsert(s *shop, table string) func(context.Context, int, []string) error {
	start := newTogether(poolSize)
	return func(ctx context.Context, _ int, batch []string) error {
		return s.inTx(ctx, func(tx *sql.Tx) error {
			fresh, err := s.absent(ctx, tx, table, batch)
			if err != nil {
				return err
			}
			if start.wait(ctx); len(fresh) == 0 {
				return nil
			}
			if err := s.effectOf(ctx, tx, fresh); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx,
				s.bind(`INSERT INTO `+table+` (id) VALUES (?)`+
					strings.Repeat(`, (?)`, len(fresh)-1)), anys(fresh)...)
			return err
		})
	}
}

// insertAfter has its effects outside of any transaction. The unique index refuses the second
// insert, when it is too late.
func insertAfter(s *shop, table string) func(context.Context, int, []string) error {
	start := newTogether(poolSize)
	return func(ctx context.Context, worker int, batch []string) error {
		fresh, err := s.absent(ctx, s.db, table, batch)
		if err != nil {
			return err
		}
		start.wait(ctx)
		if err := s.effectOf(ctx, s.db, fresh); err != nil {
			return err
		}
		for _, message := range fresh {
			if _, err := s.db.ExecContext(ctx, s.insertIfAbsent(table, 1), message,
				""); err != nil {
				return err
			}
		}
		return nil
	}
}

// oneStatement is the WITH that is often published as free of races. One statement sees one
// snapshot: a loser that has waited for the winner's row does not see it, and takes its own key for
// new.
func oneStatement(s *shop, table string) func(context.Context, int, []string) error {
	query := `WITH ins AS (INSERT INTO ` + table + ` (id, owner) VALUES ($1, 'in progress') ON CONFLICT (id) DO NOTHING RETURNING id)
		SELECT (SELECT id FROM ins) AS new_id, owner FROM ` + table + ` WHERE id = $1`
	start := newTogether(poolSize)
	return func(ctx context.Context, _ int, batch []string) error {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		start.wait(ctx)
		for _, message := range batch {
			var fresh, status sql.NullString
			err := conn.QueryRowContext(ctx, query, message).Scan(&fresh, &status)
			if err == nil && !fresh.Valid {
				continue // existed before
			}
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			if err := s.effectOf(ctx, conn, []string{message}); err != nil {
				return err
			}
			if _, err := conn.ExecContext(ctx,
				`UPDATE `+table+` SET owner = 'completed' WHERE id = $1`, message); err != nil {
				return err
			}
		}
		return nil
	}
}

// unsorted is correct except for its order: each of two transactions holds a row that the other
// needs next. It sorts after enough deadlocks, because otherwise it may take very long.
func unsorted(s *shop, table string) func(context.Context, int, []string) error {
	const enough = 20
	var deadlocks atomic.Int64
	start := newTogether(poolSize)
	return func(ctx context.Context, _ int, batch []string) error {
		if deadlocks.Load() >= enough {
			batch = slices.Sorted(slices.Values(batch))
		}
		err := s.inTx(ctx, func(tx *sql.Tx) error {
			start.wait(ctx)
			owner := rand.Text()
			args := make([]any, 0, 2*len(batch))
			for _, message := range batch {
				args = append(args, message, owner)
			}
			if _, err := tx.ExecContext(ctx, s.insertIfAbsent(table, len(batch)),
				args...); err != nil {
				return err
			}
			mine, err := texts(tx.QueryContext(ctx,
				s.bind(`SELECT id FROM `+table+` WHERE owner = ?`), owner))
			if err != nil {
				return err
			}
			return s.effectOf(ctx, tx, mine)
		})
		if deadlocked(err) {
			deadlocks.Add(1)
		}
		return err
	}
}

// insertIfAbsent takes an id and an owner for each of n rows.
func (s *shop) insertIfAbsent(table string, n int) string {
	query := `INSERT INTO ` + table + ` (id, owner) VALUES (?, ?)` + strings.Repeat(`, (?, ?)`, n-1)
	if s.dialect == sqladapter.Postgres {
		return s.bind(query) + ` ON CONFLICT (id) DO NOTHING`
	}
	return query + ` ON DUPLICATE KEY UPDATE id = id`
}

// absent returns the messages of batch that are not in the table.
func (s *shop) absent(ctx context.Context, from execer, table string,
	batch []string) ([]string, error) {
	query := `SELECT id FROM ` + table + ` WHERE id IN (?` +
		strings.Repeat(`, ?`, len(batch)-1) + `)`
	found, err := texts(from.QueryContext(ctx, s.bind(query), anys(batch)...))
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, id := range found {
		there[id] = true
	}
	var fresh []string
	for _, message := range batch {
		if !there[message] {
			fresh = append(fresh, message)
		}
	}
	return fresh, nil
}

// texts reads rows of one column.
func texts(rows *sql.Rows, err error) (all []string, _ error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}
