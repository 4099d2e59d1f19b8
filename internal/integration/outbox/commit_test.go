package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/outbox"
)

var errNoReply = errors.New("the reply to COMMIT was lost")

// lossy is a connector that answers every few COMMITs with an error, whether or not it has executed
// them.
type lossy struct {
	driver driver.Driver
	dsn    string
	count  atomic.Int64
	takes  time.Duration // if not zero, no COMMIT is lost, and each takes so long
}

func (l *lossy) Driver() driver.Driver { return l.driver }

func (l *lossy) Connect(context.Context) (driver.Conn, error) {
	conn, err := l.driver.Open(l.dsn)
	if err != nil {
		return nil, err
	}
	full, ok := conn.(lossyBase)
	if !ok {
		return nil, fmt.Errorf("%T lacks something", conn)
	}
	return &lossyConn{full, l}, nil
}

// lossyBase is what the connections of all drivers here have, and database/sql looks for.
type lossyBase interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
}

type lossyConn struct {
	lossyBase
	l *lossy
}

func (c *lossyConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.lossyBase.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *lossyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.lossyBase.BeginTx(ctx, opts)
	return lossyTx{tx, c.l}, err
}

type lossyTx struct {
	driver.Tx
	l *lossy
}

func (t lossyTx) Commit() error {
	if t.l.takes > 0 {
		<-time.After(t.l.takes)
		return t.Tx.Commit()
	}
	switch t.l.count.Add(1) % 5 {
	case 1:
		return errors.Join(t.Rollback(), errNoReply)
	case 3:
		return errors.Join(t.Tx.Commit(), errNoReply)
	}
	return t.Tx.Commit()
}

// A COMMIT whose reply is lost costs a repetition, under the same id, and never a message or
// the order.
func TestLostCommit(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		l := &lossy{driver: h.db.Driver(), dsn: h.dsn}
		db := sql.OpenDB(l)
		t.Cleanup(func() { _ = db.Close() })
		b := newBroker()
		var lost atomic.Int64
		start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
			c.DB, c.BatchSize = db, 10
			c.OnError = func(err error) {
				if errors.Is(err, errNoReply) {
					lost.Add(1)
				} else {
					t.Logf("relay: %v", err)
				}
			}
		}))
		committed := map[string]int{}
		for i := range 30 {
			var some []outbox.Message
			for k := range 10 {
				some = append(some, numbered(fmt.Sprint("k", k), i))
			}
			h.insert(t, some...)
		}
		for k := range 10 {
			committed[fmt.Sprint("k", k)] = 30
		}
		h.drained(t)
		got, _ := b.got()
		tl := judge(got, committed)
		assert.Zero(t, tl.lost)
		assert.Zero(t, tl.inversions)
		assert.NotZero(t, lost.Load())
		assert.NotZero(t, tl.duplicates)
	})
}
