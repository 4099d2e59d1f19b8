package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// Tx runs a statement in the caller's transaction. *sql.Tx has this method, and so do its wrappers,
// such as the transactions of sqlx, bun and ent. For a pgx.Tx it takes two lines:
//
//	func (t tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
//		tag, err := t.Exec(ctx, query, args...)
//		return driver.RowsAffected(tag.RowsAffected()), err
//	}
type Tx interface {
	// ExecContext is that of *sql.Tx.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Bounds of one INSERT. PostgreSQL takes 65,535 parameters, SQLite 32,766. MySQL takes a packet of
// up to 16 MiB by default.
const (
	maxRows  = 500
	maxBytes = 4 << 20
)

// InsertTx records messages in the caller's transaction: they are published when that commits, and
// never when it rolls back. It checks all of them first, before any statement; an [*InputError]
// names the message and the field. After an error of the database roll the transaction back.
// Without messages it runs no statement. Messages with a NotBefore go into a separate table, until
// a relay moves them.
//
// A transaction that is run again, because it deadlocked or its COMMIT was lost, runs its effect
// again and inserts again. So mark the effect's key in the same transaction
// (sqladapter.Ledger.MarkTx), and insert only when the mark is the first: a duplicate request then
// inserts nothing. [Do] does all of that.
//
// Messages of one key are published in the order of the arguments. One round trip for each 500
// messages or 4 MiB. It refuses a nil transaction, a connection pool, and a *sql.Conn on which no
// transaction was begun: the message would be published whatever becomes of the effect. A *sql.Conn
// costs two round trips more.
func (o *Outbox) InsertTx(ctx context.Context, tx Tx, messages ...Message) error {
	if err := o.ready(); err != nil {
		return err
	}
	if err := checkTx(tx); err != nil {
		return err
	}
	for i := range messages {
		if err := o.check(&messages[i], i); err != nil {
			return err
		}
	}
	if len(messages) > 0 {
		if err := o.checkOpen(ctx, tx); err != nil {
			return err
		}
	}
	now, later := partition(messages)
	if err := o.insertAll(ctx, tx, &o.dialect.insert, now); err != nil || len(later) == 0 {
		return err
	}
	if err := o.insertAll(ctx, tx, &o.dialect.schedule, later); err != nil {
		return err
	}
	o.scheduled.Add(1)
	return nil
}

// partition separates the messages to publish at once from the scheduled ones.
func partition(messages []Message) (now, later []Message) {
	if !slices.ContainsFunc(messages, Message.isScheduled) {
		return messages, nil
	}
	for _, m := range messages {
		if m.isScheduled() {
			later = append(later, m)
		} else {
			now = append(now, m)
		}
	}
	return now, later
}

func (m Message) isScheduled() bool { return !m.NotBefore.IsZero() }

func (o *Outbox) insertAll(ctx context.Context, tx Tx, into *insertion, messages []Message) error {
	for len(messages) > 0 {
		n := chunk(messages)
		query, args := o.insertion(into, messages[:n])
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return fmt.Errorf("outbox: insert: %w", o.notMigrated(err))
		}
		messages = messages[n:]
	}
	return nil
}

// chunk is how many of the messages fit into one statement, at least one.
func chunk(messages []Message) int {
	size := 0
	for i := range messages {
		size += len(messages[i].Payload) + len(messages[i].Key)
		for _, h := range messages[i].Headers {
			size += headerCost + len(h.Key) + len(h.Value)
		}
		if i == maxRows || i > 0 && size > maxBytes {
			return i
		}
	}
	return len(messages)
}

func (o *Outbox) insertion(into *insertion, messages []Message) (query string, args []any) {
	var b strings.Builder
	b.Grow(len(into.into) + 80*len(messages))
	b.WriteString(into.into)
	args = make([]any, 0, into.columns*len(messages))
	for i := range messages {
		if i > 0 {
			b.WriteString(", ")
		}
		into.tuple(&b, 1+into.columns*i)
		args = o.appendRow(args, messages[i])
		if messages[i].isScheduled() {
			args = append(args, o.dialect.timeOf(messages[i].NotBefore))
		}
	}
	return b.String(), args
}

// appendRow does not write to the caller's message.
func (o *Outbox) appendRow(args []any, m Message) []any {
	if m.ID == "" {
		m.ID = newID()
	}
	if m.Key == nil {
		m.Key = []byte{} // the column is NOT NULL
	}
	var payload any
	if m.Payload != nil {
		payload = m.Payload
	}
	return append(args, shardOf(&m, o.dialect.shards), m.Topic, m.ID,
		m.Key, encodeHeaders(m.Headers), payload)
}

// checkTx refuses nil, even inside an interface, and connection pools.
func checkTx(tx Tx) error {
	if isNil(tx) {
		return inputError("tx", "is nil")
	}
	if _, pool := tx.(interface{ SetMaxOpenConns(int) }); pool {
		return inputError("tx", "is a connection pool; pass the transaction that holds the effect")
	}
	return nil
}
