package sqladapter

import (
	"context"
	"database/sql"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter/native"
)

// Native has [Ledger.Do], [Ledger.DoBatch] and [Ledger.Confirm] for transactions that are not of
// database/sql. Package sqladapter/pgxv5 uses it for pgx. Ledger and Begin are required, and it is
// as safe for concurrent use as they are. To detect an effect that has ended its transaction, as Do
// does elsewhere, Begin of PostgreSQL can send SAVEPOINT onceward_guard after BEGIN, and Commit can
// send RELEASE SAVEPOINT onceward_guard together with COMMIT.
type Native struct {
	// Ledger is one that [New] has made, of any dialect except [MySQL] and SQL Server.
	Ledger *Ledger
	// Begin begins a transaction at a level; [sql.LevelDefault] is what the database has set.
	// A level that the database does not know is an error.
	Begin func(ctx context.Context, level sql.IsolationLevel) (native.Transaction, error)
	// DB tells databases apart: a Do inside the effect of another Do, with the same key and the
	// same DB, would wait for itself, and is refused. It is any comparable value; with nil nothing
	// is refused. Default: nil.
	DB any
	// Reset drops the idle connections of DB. It is called before the next Begin, when the server
	// has answered that it takes no writes. Default: nil, nothing is dropped.
	Reset func()
	// Attach puts a transaction into the context of the effect of a [Runner]. Default: nil, the
	// effect cannot find it.
	Attach func(ctx context.Context, tx native.Transaction) context.Context
}

// check also refuses the dialects where Do needs a connection of database/sql.
func (n Native) check(ctx context.Context, noEffect bool) error {
	if err := n.Ledger.checkDo(ctx, "Begin", n.Begin == nil, noEffect); err != nil {
		return err
	}
	if n.Ledger.dialect.guard == guardMySQL || n.Ledger.dialect.begin != nil {
		return inputError("Ledger", "are of a dialect whose transactions have to be of database/sql")
	}
	return nil
}

// Do is [Ledger.Do]. effect is given what Begin has returned.
func (n Native) Do(
	ctx context.Context, key string, effect func(ctx context.Context, tx native.Transaction) error,
	opts ...dedup.Option,
) (Mark, error) {
	if err := n.check(ctx, effect == nil); err != nil {
		return Mark{}, err
	}
	return n.Ledger.doBounded(ctx, n.DB, n.at(n.Ledger.isolation),
		key, func(ctx context.Context, tx transaction) error {
			return effect(ctx, tx.(native.Transaction)) //nolint:errcheck,forcetypeassert // begin has made it
		}, opts)
}

// DoBatch is [Ledger.DoBatch]. effect is given what Begin has returned.
func (n Native) DoBatch(
	ctx context.Context, keys []string,
	effect func(ctx context.Context, tx native.Transaction, first []int) error,
	opts ...dedup.Option,
) ([]Mark, error) {
	if err := n.check(ctx, effect == nil); err != nil {
		return nil, err
	}
	return n.Ledger.doBatch(ctx, n.DB, n.at(n.Ledger.isolation), keys,
		func(ctx context.Context, tx transaction, first []int) error {
			return effect(ctx, tx.(native.Transaction), first) //nolint:errcheck,forcetypeassert // begin has made it
		}, opts)
}

// Confirm is [Ledger.Confirm].
func (n Native) Confirm(ctx context.Context, key string, mark Mark,
	opts ...dedup.Option) (CommitStatus, error) {
	if err := n.check(ctx, false); err != nil {
		return Undecided, err
	}
	return n.Ledger.confirm(ctx, n.at(n.Ledger.dialect.weakest), key, mark, opts)
}

// Runner is [Ledger.Runner]. An effect finds its transaction through Attach.
func (n Native) Runner() (*Runner, error) {
	if err := n.check(context.Background(), false); err != nil {
		return nil, err
	}
	return n.Ledger.newRunner(&Runner{db: n.DB, begin: n.at(n.Ledger.isolation),
		attach: func(ctx context.Context, tx transaction) context.Context {
			if n.Attach == nil {
				return ctx
			}
			return n.Attach(ctx, tx.(native.Transaction)) //nolint:errcheck,forcetypeassert // begin has made it
		}}), nil
}

// FenceDo is [Fence.Do]; the Ledger of n is not used. effect is given what Begin has returned.
func (n Native) FenceDo(
	ctx context.Context, f *Fence, p Position, from, to int64,
	effect func(ctx context.Context, tx native.Transaction, start int64) error,
) (Advance, error) {
	span := Span{Position: p, From: from, To: to}
	if err := f.checkDo(ctx, "Begin", n.Begin == nil, span, effect == nil); err != nil {
		return Advance{}, err
	}
	if f.statements.guard == guardMySQL {
		return Advance{}, inputError("Fence",
			"is of a dialect whose transactions have to be of database/sql")
	}
	return f.do(ctx, n.DB, n.at(f.isolation), span,
		func(ctx context.Context, tx transaction, start int64) error {
			return effect(ctx, tx.(native.Transaction), start) //nolint:errcheck,forcetypeassert // begin has made it
		})
}

// asTx returns the Tx through which the statements of an effect go.
func asTx(tx transaction) Tx {
	if native, ok := tx.(native.Transaction); ok {
		return native
	}
	return ofSQL(tx)
}

// execText runs a statement whose rows, if it has any, do not matter.
func execText(ctx context.Context, tx Tx, text string, args ...any) error {
	if executes, ok := tx.(execTx); ok {
		_, err := executes.ExecContext(ctx, text, args...)
		return err
	}
	return runStatement(ctx, tx, statement{text, args})
}

func (n Native) at(level sql.IsolationLevel) beginner {
	return func(ctx context.Context, before error) (transaction, error) {
		if n.Reset != nil && sqlerr.ReadOnly(before) {
			n.Reset()
		}
		tx, err := n.Begin(ctx, level)
		if err != nil {
			return nil, err // tx may be a nil pointer inside an interface
		}
		if isNil(tx) {
			return nil, inputError("Begin", "has returned neither a transaction nor an error")
		}
		return tx, nil
	}
}
