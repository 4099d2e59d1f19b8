package sqladapter

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"
)

const leastLockTimeout, mostLockTimeout = time.Millisecond, time.Hour

// checkLockTimeout accepts zero.
func checkLockTimeout(limit time.Duration, bound bounder) error {
	switch {
	case limit != 0 && bound == nil:
		return inputError("LockTimeout",
			"is "+limit.String()+"; it is for PostgreSQL and MySQL; SQLite has the busy_timeout of its connections")
	case limit != 0 && (limit < leastLockTimeout || limit > mostLockTimeout):
		return inputError("LockTimeout", "must be zero, or 1ms to 1h, is "+limit.String())
	}
	return nil
}

// impatient begins transactions whose statements wait for locks no longer than limit, until patient
// gives the transaction its own lock timeout back. With a limit of zero nothing changes.
func (m *Ledger) impatient(begin beginner, limit time.Duration) (bounded beginner,
	patient func(ctx context.Context) error) {
	if limit == 0 || m.dialect.bound == nil {
		return begin, func(context.Context) error { return nil }
	}
	var back func(ctx context.Context) error // for the transaction that was begun last
	bounded = func(ctx context.Context, before error) (transaction, error) {
		tx, err := begin(ctx, before)
		if err != nil {
			return nil, err
		}
		if back, err = m.dialect.bound(ctx, tx, limit); err != nil {
			rollback(ctx, tx)
			return nil, err
		}
		return tx, nil
	}
	return bounded, func(ctx context.Context) error {
		if err := back(ctx); err != nil {
			return fmt.Errorf("sqladapter: lock timeout: %w", err)
		}
		return nil
	}
}

// A bounder bounds how long the statements of a transaction wait for locks. The function that it
// returns restores the old bound.
type bounder func(ctx context.Context, tx transaction,
	limit time.Duration) (back func(ctx context.Context) error, err error)

// postgresBound sets a bound that ends with the transaction, however that ends. The same round trip
// reads the old setting first, because PostgreSQL computes the CTE's row before the list of the
// SELECT.
func postgresBound(ctx context.Context, tx transaction,
	limit time.Duration) (func(context.Context) error, error) {
	millis := strconv.FormatInt(ceil(limit, time.Millisecond), 10)
	var was, now string
	err := scanOne(ctx, tx,
		`WITH old AS MATERIALIZED (SELECT current_setting('lock_timeout') AS setting)`+
			` SELECT setting, set_config('lock_timeout', '`+millis+`', true) FROM old`, &was, &now)
	return func(ctx context.Context) error {
		return execText(ctx, asTx(tx), `SELECT set_config('lock_timeout', $1, true)`, was)
	}, err
}

const (
	rowWait     = `SET @onceward_lock_wait = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = `
	rowWaitBack = `SET innodb_lock_wait_timeout = @onceward_lock_wait`
)

// mysqlBound sets a bound that stays with the connection. So a transaction that ends while it is
// set restores the old bound, or closes its connection.
func mysqlBound(ctx context.Context, tx transaction,
	limit time.Duration) (func(context.Context) error, error) {
	g := tx.(*guardedTx) //nolint:errcheck,forcetypeassert // beginIn makes no other for MySQL
	g.back = rowWaitBack
	_, err := g.ExecContext(ctx,
		rowWait+strconv.FormatFloat(math.Ceil(limit.Seconds()), 'f', 0, 64))
	return func(ctx context.Context) error {
		_, err := g.ExecContext(ctx, rowWaitBack)
		if err == nil {
			g.back = ""
		}
		return err
	}, err
}
