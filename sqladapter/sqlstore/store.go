// Package sqlstore is a [dedup.Store] in a table of a SQL database: claims, leases and records for
// effects that are elsewhere, such as a request or a mail. Where the effect is in the same
// database, the ledger of package sqladapter records it in the effect's own transaction instead.
//
//	store, err := sqlstore.New(db, sqlstore.Options{Dialect: sqlstore.Postgres})
//	if err != nil {
//		return err
//	}
//	if err := store.Migrate(ctx); err != nil {
//		return err
//	}
//	go store.RunSweeper(ctx, sqlstore.SweeperConfig{}) // keeps the table small
//	d, err := dedup.New(store, dedup.Config{Namespace: "payments",
//		Window: 24 * time.Hour, LeaseTTL: 30 * time.Second})
//
// Package dedup/resolver settles attempts that ended after [dedup.MarkIrreversible] with an unknown
// outcome.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
	"github.com/onceward/onceward/sqladapter/migration"
)

// Dialect is the SQL that a database speaks.
type Dialect = dialect.Dialect

const (
	// Postgres is PostgreSQL 12 or newer.
	Postgres = dialect.Postgres
	// SQLite is SQLite 3.35 or newer, which has RETURNING.
	SQLite = dialect.SQLite
	// MySQL is MySQL 8.0 or newer, and MariaDB 10.6 or newer, with InnoDB.
	MySQL = dialect.MySQL
)

const (
	// DefaultTable is the table of a [Options] that names none.
	DefaultTable = "onceward_claims"
	// DefaultMaxResult is the default of Options.MaxResult, in bytes.
	DefaultMaxResult = 1 << 20

	mostResult = 4 << 20
)

// Options says where a [Store] keeps its claims and records. Dialect is required.
type Options struct {
	// Dialect of the database. No default.
	Dialect Dialect
	// Schema that holds the tables (MySQL: the database; SQLite: the attached database), of
	// the form [A-Za-z_][A-Za-z0-9_]{0,62}. It must exist. Default: the connection's own.
	Schema string
	// Table that holds claims and records; same form as Schema. Next to it there is
	// <Table>_forgets. Default: [DefaultTable].
	Table string
	// MaxResult is the size in bytes of the largest result that is kept, at most 4 MiB. A larger
	// result is refused with a [*driver.InputError]. So are the claims of a Deduper whose
	// [dedup.Config].ResultLimit is larger. Default: [DefaultMaxResult].
	MaxResult int
	// Waker wakes waiters in other processes ([dedup.Config].Wait). Package outbox/pgxlisten has
	// one. Default nil: waiters poll.
	Waker driver.Waker
}

// Store is a [driver.Store] in a database, for effects that are elsewhere, so that a
// sqladapter.Ledger cannot put the record into their transaction. Make it with [New].
//
// Every batch is a transaction, READ COMMITTED whatever the server's default. The Store locks the
// rows in the order of their ids, reads the database's clock, decides the next state of each key in
// this process, and writes changed rows back. On PostgreSQL claims of unknown keys and ends by
// their owners are one statement each. After a deadlock or a serialization failure the Store tries
// again a few times. A batch of more than some hundred items, or some MiB of results, is several
// transactions.
//
// An item whose transaction failed carries Answer.Err; after a lost connection it may have been
// executed anyway. Call again with the same token to find out.
//
// Time is the clock of the database, in microseconds, or milliseconds with SQLite. When that
// clock is set back, leases last longer by as much, and a key that has expired and was swept
// may get a smaller fence than it had.
//
// It holds no connection between calls, and is safe for concurrent use. A goroutine that it starts
// ends with the call, or as soon as the driver notices that the context has ended.
type Store struct {
	db         database
	dialect    storeDialect
	migrations *migration.Set
	tables     []string
	maxResult  int
	waker      driver.Waker // or nil
}

var (
	_ driver.Store      = (*Store)(nil)
	_ driver.Waker      = (*Store)(nil)
	_ driver.Resolvable = (*Store)(nil)
)

// New checks the configuration. It does not touch the database; see [Store.Migrate]. Its error is a
// [*driver.InputError] that names the wrong field.
//
// SQLite needs a busy_timeout on its connections: otherwise calls that meet another writer fail
// after a few tries. The store needs one connection of db for a call, and db may be shared with
// others.
func New(db *sql.DB, cfg Options) (*Store, error) {
	if db == nil {
		return nil, dialect.InputError("db", "is nil")
	}
	return newStore(&sqlDatabase{sqlQuerier{db}, db}, cfg)
}

// NewNative is [New] for a database that is not of database/sql. Options.Dialect must be
// [Postgres]. Users of pgx call NewStore of package sqladapter/pgxv5.
func NewNative(db Native, cfg Options) (*Store, error) {
	if err := db.check(); err != nil {
		return nil, err
	}
	if cfg.Dialect != Postgres {
		return nil, dialect.InputError("Dialect", "must be Postgres")
	}
	return newStore(&nativeDatabase{nativeQuerier{db.Query}, db}, cfg)
}

func newStore(db database, cfg Options) (*Store, error) {
	build, ok := storeDialects[cfg.Dialect]
	switch {
	case !ok:
		return nil, dialect.InputError("Dialect", "must be Postgres, MySQL or SQLite")
	case cfg.MaxResult < 0 || cfg.MaxResult > mostResult:
		return nil, dialect.InputError("MaxResult",
			fmt.Sprintf("is %d; at most %d is allowed", cfg.MaxResult, mostResult))
	}
	if cfg.Table == "" {
		cfg.Table = DefaultTable
	}
	if cfg.MaxResult == 0 {
		cfg.MaxResult = DefaultMaxResult
	}
	names, err := newStoreNames(cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, dialect: build(names), maxResult: cfg.MaxResult, waker: cfg.Waker,
		tables: []string{names.table, names.forgets}}
	s.migrations, err = migrationsOf(cfg, func(ctx context.Context, tx *sql.Tx, _ int) error {
		_, _, err := s.load(ctx, sqlQuerier{tx}, make([]driver.ID, 1), false)
		return dialect.OtherForm(names.table, "claims", err)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Wake implements [driver.Waker] by Options.Waker. Without one it returns errors.ErrUnsupported.
func (s *Store) Wake(ctx context.Context, ids []driver.ID) error {
	if s.waker == nil {
		return errors.ErrUnsupported
	}
	return s.waker.Wake(ctx, ids)
}

// Listen implements [driver.Waker] by Options.Waker, as Wake does.
func (s *Store) Listen(ctx context.Context, id driver.ID, woken func()) (stop func(), err error) {
	if s.waker == nil {
		return nil, errors.ErrUnsupported
	}
	return s.waker.Listen(ctx, id, woken)
}

// Claim implements [driver.Store]. On PostgreSQL a new key costs one round trip, and a key that is
// done or in flight costs two. A claim that takes over another claim costs about six, and so does
// every successful claim on MySQL. With ClaimRequest.LikelyDuplicate it looks for the key first:
// one round trip if it is done or in flight, two on PostgreSQL if it is new after all.
func (s *Store) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	return answer(ctx, len(reqs), func(answers []driver.Answer) {
		var fresh, known []int
		for _, i := range admit(answers, func(i int) error { return s.checkClaim(&reqs[i]) }) {
			if reqs[i].LikelyDuplicate {
				known = append(known, i)
			} else {
				fresh = append(fresh, i)
			}
		}
		op := operation{
			id: reqID(reqs), size: noSize, creates: func(int) bool { return true }, fresh: true,
			decide: func(i int, r *claimRow, now int64) (driver.Answer, bool) {
				return decideClaim(r, &reqs[i], now)
			},
		}
		tried := s.claimFresh(ctx, reqs, fresh, answers)
		mine := s.peek(ctx, op, append(tried, known...), answers)
		mine = s.claimMistaken(ctx, reqs, mine, answers)
		s.settle(ctx, op, mine, answers)
	})
}

// claimFresh claims keys that have no row, on databases where that is one statement, and returns
// the rest.
func (s *Store) claimFresh(ctx context.Context, reqs []driver.ClaimRequest, todo []int,
	answers []driver.Answer) []int {
	quick, ok := s.dialect.(quickDialect)
	if !ok || len(todo) == 0 {
		return todo
	}
	return s.quickly(ctx, todo, answers, reqID(reqs),
		noSize, func(items []int) ([]*claimRow, int64, error) {
			picked := pick(reqs, items)
			return s.rows(ctx, s.db, func() statement { return quick.insertClaims(picked) })
		}, func(_ int, r *claimRow, now int64) driver.Answer {
			return driver.Answer{Outcome: driver.Acquired, Record: r.view(now)}
		})
}

// claimMistaken does the work of claimFresh for keys that were expected to be duplicates, and
// turned out to be free.
func (s *Store) claimMistaken(ctx context.Context, reqs []driver.ClaimRequest, todo []int,
	answers []driver.Answer) []int {
	likely := func(i int) bool { return reqs[i].LikelyDuplicate }
	rest := slices.DeleteFunc(slices.Clone(todo), likely)
	mistaken := slices.DeleteFunc(todo, func(i int) bool { return !likely(i) })
	return append(rest, s.claimFresh(ctx, reqs, mistaken, answers)...)
}

// Renew implements [driver.Store]. About four round trips.
func (s *Store) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	return answer(ctx, len(renewals), func(answers []driver.Answer) {
		todo := admit(answers, func(i int) error { return renewals[i].Check() })
		s.settle(ctx, operation{
			id:   func(i int) driver.ID { return renewals[i].ID },
			size: func(i int) int { return len(renewals[i].Steps) },
			decide: func(i int, r *claimRow, now int64) (driver.Answer, bool) {
				return decideRenew(r, &renewals[i], now)
			},
		}, todo, answers)
	})
}

// Finish implements [driver.Store]. On PostgreSQL it costs one round trip when the owner ends with
// StateSucceeded or StateFailed; otherwise, and on other databases, about five. Finish.With is
// refused: record an effect in this database with a sqladapter.Ledger instead, in the effect's own
// transaction.
func (s *Store) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	return answer(ctx, len(changes), func(answers []driver.Answer) {
		todo := admit(answers, func(i int) error { return s.checkFinish(&changes[i]) })
		todo = s.finishOwned(ctx, changes, todo, answers)
		s.settle(ctx, operation{
			id: changeID(changes), size: func(i int) int { return len(changes[i].Result) },
			creates: func(i int) bool { return changes[i].EffectApplied },
			decide: func(i int, r *claimRow, now int64) (driver.Answer, bool) {
				return decideFinish(r, &changes[i], now)
			},
		}, todo, answers)
	})
}

// finishOwned ends claims that their owners hold, on databases where that is one statement, and
// returns the rest.
func (s *Store) finishOwned(ctx context.Context, changes []driver.Finish, todo []int,
	answers []driver.Answer) []int {
	quick, ok := s.dialect.(quickDialect)
	if !ok {
		return todo
	}
	var others, ends []int
	for _, i := range todo {
		if changes[i].State == driver.StateReleased {
			others = append(others, i)
		} else {
			ends = append(ends, i)
		}
	}
	size := func(i int) int { return len(changes[i].Result) }
	rest := s.quickly(ctx, ends, answers, changeID(changes), size,
		func(items []int) ([]*claimRow, int64, error) {
			picked := pick(changes, items)
			return s.rows(ctx, s.db, func() statement { return quick.finishClaims(picked) })
		}, func(i int, r *claimRow, now int64) driver.Answer {
			r.result = slices.Clone(changes[i].Result)
			return driver.Answer{Held: true, Written: true, Record: r.view(now)}
		})
	return append(others, rest...)
}

// Lookup implements [driver.Store]. One round trip, three on MySQL.
func (s *Store) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	return answer(ctx, len(ids), func(answers []driver.Answer) {
		s.peek(ctx, operation{
			id: func(i int) driver.ID { return ids[i] }, size: noSize,
			decide: func(_ int, r *claimRow, now int64) (driver.Answer, bool) {
				return driver.Answer{Record: r.view(now)}, false
			},
		}, all(len(ids)), answers)
	})
}

// Forget implements [driver.Store]. About six round trips.
func (s *Store) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	answers := answer(ctx, len(ids), func(answers []driver.Answer) {
		todo := admit(answers, func(int) error {
			if hold < 0 {
				return dialect.InputError("hold", "is negative")
			}
			return nil
		})
		s.settle(ctx, operation{
			id: func(i int) driver.ID { return ids[i] }, size: noSize, countsForget: true,
			decide: func(_ int, r *claimRow, now int64) (driver.Answer, bool) {
				write, err := decideForget(r, hold, now)
				return driver.Answer{Err: err}, write
			},
		}, todo, answers)
	})
	errs := make([]error, len(ids))
	for i := range answers {
		errs[i] = answers[i].Err
	}
	return errs
}

// Forgets lets caches of finished keys notice that something was forgotten; see [driver.Store]. The
// number is in a row that every Forget increments in its own transaction. One round trip, three on
// MySQL.
func (s *Store) Forgets(ctx context.Context) (uint64, error) {
	var n int64
	err := within(ctx, func() error {
		return s.read(ctx, func(q querier) error {
			return queryOne(ctx, q, s.dialect.countForgets(), &n)
		})
	})
	if err != nil {
		return 0, fmt.Errorf("sqlstore: count forgets: %w", s.notMigrated(err))
	}
	return uint64(n), nil // counts from zero
}
