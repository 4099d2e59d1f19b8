package sqladapter

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/internal/sqlmigrate"
	"github.com/onceward/onceward/internal/sqlname"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
	"github.com/onceward/onceward/sqladapter/migration"
)

// defaultFenceTable is the table of a [FenceConfig] that names none.
const defaultFenceTable = "onceward_fence"

// FenceConfig says where positions are kept, and for which consumer group. Dialect and Group are
// required.
type FenceConfig struct {
	// Dialect of the database. No default.
	Dialect Dialect
	// Group is the consumer group whose positions these are, 1-255 bytes of UTF-8. Each group has
	// its own effects and positions. No default.
	Group string
	// Schema that holds the table (MySQL: the database, SQLite: the attached database), of
	// the form [A-Za-z_][A-Za-z0-9_]{0,62}. It must exist. Default: the connection's own.
	Schema string
	// Table that holds the positions; same form as Schema. Default: onceward_fence.
	Table string
	// Isolation of the transactions that [Fence.Do] begins; see [Config.Isolation]. Default:
	// [sql.LevelDefault].
	Isolation sql.IsolationLevel
}

// Fence keeps the next offset of every partition, and moves it in the transaction of the effects:
// one row for a batch instead of a row for each message. A message that is delivered again after a
// crash or a rebalance, or to a former owner that has not noticed yet, finds the fence moved, and
// is not done again.
//
// It catches only redeliveries. A message that a producer has sent twice has two offsets: where
// that happens use [Ledger.MarkBatchTx] as well, or instead.
//
// It is right only for messages of a partition that are handled in the order of their offsets, each
// span beginning where the one before it has ended. If a span overtakes an earlier one, the earlier
// one counts as done and is lost. kafkaadapter's RangeHandler keeps this order, other handlers do
// not. Do not use a Fence where Kafka may give an offset to a second message: on a topic that
// allows an unclean leader election.
//
// Make it with [NewFence]. It holds no connection and is safe for concurrent use.
type Fence struct {
	table      string // in full
	group      string
	isolation  sql.IsolationLevel
	statements *fenceStatements
	migrations *migration.Set
}

// NewFence checks the configuration, and returns a [*dedup.InputError] that names the wrong field.
// It does not touch the database; see [Fence.Migrate].
func NewFence(cfg FenceConfig) (*Fence, error) {
	build, ok := fenceDialects[cfg.Dialect]
	if !ok {
		return nil, inputError("Dialect", "must be Postgres, MySQL or SQLite")
	}
	if len(cfg.Group) < 1 || len(cfg.Group) > 255 || !utf8.ValidString(cfg.Group) ||
		strings.ContainsRune(cfg.Group, 0) {
		return nil, inputError("Group", "must be 1 to 255 bytes of UTF-8 without a zero byte")
	}
	if cfg.Table == "" {
		cfg.Table = defaultFenceTable
	}
	if !sqlname.Valid(cfg.Table) {
		return nil, inputError("Table", sqlname.Form)
	}
	if cfg.Schema != "" && !sqlname.Valid(cfg.Schema) {
		return nil, inputError("Schema", sqlname.Form)
	}
	if err := checkIsolation(cfg.Dialect, cfg.Isolation); err != nil {
		return nil, err
	}
	table := cfg.Dialect.In(cfg.Schema, cfg.Table)
	f := &Fence{table: table, group: cfg.Group, isolation: cfg.Isolation, statements: build(table)}
	var err error
	f.migrations, err = newMigrations(cfg.Dialect, sqlmigrate.Config{
		Component: "fence", Schema: cfg.Schema, Table: cfg.Table,
		Verify: func(ctx context.Context, tx *sql.Tx, _ int) error {
			err := scanPositions(ctx, tx, f.of(f.statements.lookup, Position{}),
				map[Position]int64{})
			return dialect.OtherForm(table, "fences", err)
		},
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Migrate is [migration.Set.Up] of the fence's table. It refuses a table of another form with the
// same name, and leaves it as it is.
func (f *Fence) Migrate(ctx context.Context, db *sql.DB) error {
	if err := f.ready(); err != nil {
		return err
	}
	return f.migrations.Up(ctx, db)
}

// Migrations of the fence's table; nil when f was not made by NewFence.
func (f *Fence) Migrations() *migration.Set {
	if f == nil {
		return nil
	}
	return f.migrations
}

// unlearnt is that of a statement on the table of f.
func (f *Fence) unlearnt(err error) Mark { return unlearnt(sqlerr.NotMigrated(err, f.table)) }

func (f *Fence) ready() error {
	if f == nil || f.statements == nil {
		return inputError("Fence", "is nil or was not made by NewFence")
	}
	return nil
}

// AdvanceTx moves the fence of a position to the offset to, in the caller's transaction. It returns
// the offset in [from, to) from which on the caller must run the effects, in the same transaction,
// before it commits. The fence never moves back.
//
// It waits for another open transaction that has moved the same fence, as long as ctx and the
// database's lock timeout allow; a timeout is [dedup.ErrInFlight]. A span that begins above the
// stored offset is accepted, see [Advance.Gap]. If to is not above from, the position is bad, or
// the transaction is nil or a connection pool, the error is an [*dedup.InputError], before any
// statement. After any other error roll back: [Retryable] says whether the transaction may be run
// again. It may be run again after an error of its COMMIT, because the fence shows what has been
// done. It takes one round trip; four in MySQL and two in SQLite, which first check whether there
// is a transaction at all.
func (f *Fence) AdvanceTx(ctx context.Context, tx Tx, p Position, from, to int64) (Advance, error) {
	all, err := f.AdvanceBatchTx(ctx, tx, []Span{{Position: p, From: from, To: to}})
	if err != nil {
		return Advance{}, err
	}
	return all[0], nil
}

// AdvanceBatchTx is [Fence.AdvanceTx] for several positions, each once; the answers are in the
// order of the spans. It moves the fences in the order of their positions, so that two calls wait
// for each other and do not deadlock. An empty batch runs no statement. It takes one round trip
// with PostgreSQL, and with other databases as many as single calls.
func (f *Fence) AdvanceBatchTx(ctx context.Context, tx Tx, spans []Span) ([]Advance, error) {
	if err := f.ready(); err != nil {
		return nil, err
	}
	if err := checkTx(tx, f.statements.guard == guardMySQL); err != nil {
		return nil, err
	}
	order, err := inOrder(spans)
	if err != nil || len(spans) == 0 {
		return nil, err
	}
	if err := checkOpen(ctx, tx, f.statements.guard); err != nil {
		return nil, f.unlearnt(err).Err
	}
	stored, err := f.advance(ctx, tx, order)
	if err != nil {
		return nil, err
	}
	found := make([]Advance, len(spans))
	for i, s := range spans {
		found[i] = s.found(stored)
	}
	return found, nil
}

// advance moves the fences, and returns the offset stored before for each position, except where
// all of the span was already done.
func (f *Fence) advance(ctx context.Context, tx Tx, spans []Span) (map[Position]int64, error) {
	stored := make(map[Position]int64, len(spans))
	for chunk := range slices.Chunk(spans, f.statements.chunk) {
		for _, one := range f.statements.advance(f.group, chunk) {
			if err := scanPositions(ctx, tx, one, stored); err != nil {
				return nil, f.unlearnt(err).Err
			}
		}
	}
	return stored, nil
}

// scanPositions runs a statement and reads topic, topic id, partition and offset.
func scanPositions(ctx context.Context, tx Tx, s statement, into map[Position]int64) (err error) {
	rows, err := query(ctx, tx, s)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := rows.Close(); err == nil {
			err = closeErr
		}
	}()
	for rows.Next() {
		var p Position
		var offset int64
		if err := rows.Scan(&p.Topic, &p.TopicID, &p.Partition, &offset); err != nil {
			return err
		}
		into[p] = offset
	}
	return rows.Err()
}

// Lookup reads the next offset of a position; found is false when there is none. It takes a
// transaction or a connection pool, changes nothing and waits for nobody: an open transaction may
// be about to move the fence. It takes one round trip, three on a pool of MySQL.
func (f *Fence) Lookup(ctx context.Context, q Tx, p Position) (next int64, found bool, err error) {
	if err := cmp.Or(f.ready(), p.check()); err != nil {
		return 0, false, err
	}
	if isNil(q) {
		return 0, false, inputError("q", "is nil")
	}
	stored := make(map[Position]int64, 1)
	err = alone(ctx, q, f.statements.guard, func(q Tx) error {
		return scanPositions(ctx, q, f.of(f.statements.lookup, p), stored)
	})
	if err != nil {
		return 0, false, f.unlearnt(err).Err
	}
	next, found = stored[p]
	return next, found, nil
}

// Forget removes the stored offset of a position, in the caller's transaction. Use it when
// you have stopped the consumers and rewound the group on purpose: everything that is delivered
// from then on runs again. One round trip.
func (f *Fence) Forget(ctx context.Context, tx Tx, p Position) error {
	if err := cmp.Or(f.ready(), p.check()); err != nil {
		return err
	}
	if err := checkTx(tx, f.statements.guard == guardMySQL); err != nil {
		return err
	}
	if err := scanPositions(ctx, tx, f.of(f.statements.forget, p), nil); err != nil {
		return f.unlearnt(err).Err
	}
	return nil
}

// of returns a statement about one position.
func (f *Fence) of(text string, p Position) statement {
	return statement{text, []any{f.group, p.Topic, p.TopicID, p.Partition}}
}
