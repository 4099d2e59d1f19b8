package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a database that fails and is slow on demand. It knows the statements of PostgreSQL by
// their effects, and implements transactions only as far as a relay needs them.
type fake struct {
	mu    sync.Mutex
	rows  []*fakeRow
	locks map[int64]bool
	count map[string]int // of each statement
	lows  []int64        // of the reads of more than one message
	// polled are the ids behind which polls have asked, one for each shard
	polled []int64

	server  int64  // its run
	writers string // transactions that insert
	blind   bool   // it cannot tell who inserts

	holder, holderBytes []driver.Value // of the oldest snapshot

	// fail, if set, answers a statement with an error, and slow makes it take so long.
	fail func(statement string) error
	slow map[string]time.Duration
}

type fakeRow struct {
	Message
	id, shard, attempts int64
	until               time.Time
	parked              bool
}

// openFake returns a pool on messages that are committed, in their order.
func openFake(t *testing.T, o *Outbox, messages ...Message) (*fake, *sql.DB) {
	t.Helper()
	f := &fake{locks: map[int64]bool{}, count: map[string]int{}, slow: map[string]time.Duration{},
		server: 1}
	for i, m := range messages {
		f.rows = append(f.rows, &fakeRow{Message: m, id: int64(i + 1),
			shard: int64(shardOf(&m, o.dialect.shards))})
	}
	db := sql.OpenDB(f)
	t.Cleanup(func() { _ = db.Close() })
	return f, db
}

// left are the ids of the messages that are still to be published, and of those that are parked.
func (f *fake) left() (pending, parked []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rows {
		if r.parked {
			parked = append(parked, r.ID)
		} else {
			pending = append(pending, r.ID)
		}
	}
	return pending, parked
}

// add commits one more message.
func (f *fake) add(m Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, &fakeRow{Message: m, id: int64(len(f.rows) + 1000),
		shard: int64(shardOf(&m, shards))})
}

func (f *fake) ran(statement string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[statement]
}

func (f *fake) Connect(context.Context) (driver.Conn, error) { return &fakeConn{fake: f}, nil }
func (f *fake) Driver() driver.Driver                        { return nil }

type fakeConn struct {
	*fake
	tx    []func() // what a commit does
	saved int      // what of it a savepoint keeps
	locks []int64
}

func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("fake: prepare") }
func (c *fakeConn) Begin() (driver.Tx, error)           { return nil, errors.New("fake: begin") }
func (c *fakeConn) Close() error                        { return nil }

func (c *fakeConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	return c, c.run(ctx, "begin")
}

func (c *fakeConn) Commit() error {
	err := c.run(context.Background(), "commit")
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, do := range c.tx {
		if err == nil {
			do()
		}
	}
	c.end()
	return err
}

func (c *fakeConn) Rollback() error {
	_ = c.run(context.Background(), "rollback") // it takes its time, and does not fail
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	return nil
}

func (c *fakeConn) end() {
	for _, no := range c.locks {
		delete(c.fake.locks, no)
	}
	c.tx, c.saved, c.locks = nil, 0, nil
}

// run counts a statement, takes its time, and fails it when it should.
func (c *fakeConn) run(ctx context.Context, statement string) error {
	c.mu.Lock()
	c.count[statement]++
	wait, fail := c.slow[statement], c.fail
	c.mu.Unlock()
	if err := pause(ctx, wait); err != nil {
		return err
	}
	if fail != nil {
		return fail(statement)
	}
	return nil
}

// rowIf returns rows with row alone, or without any if it is nil.
func rowIf(row []driver.Value) driver.Rows {
	if row == nil {
		return &fakeRows{}
	}
	return rowsOf(row)
}

// pause makes no timer when there is nothing to wait for. A select that finds a timer due runs it
// there, under one context of the race detector for all timers of a bubble. Two goroutines that did
// so at once crashed a run inside of the race detector (Go 1.26.8, timer.maybeRunChan).
func pause(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// statementOf names what a text of PostgreSQL does.
func statementOf(query string) string {
	for _, known := range []struct{ part, name string }{
		{"pg_locks", "writers"}, {"_scheduled", "next_due"},
		{"pg_stat_activity", "holder"}, {"innodb_trx", "holder"},
		{"performance_schema", "holder_bytes"},
		{"to_regclass", "exists"}, {"SELECT version", "version"}, {"DESC LIMIT 1", "top"},
		{"generate_series", "busy"}, {"pg_try_advisory", "lock"},
		{"pg_notify", "notify"}, {"(topic, key) NOT IN", "read_free"}, {"SELECT id, topic", "read"},
		{"_parked", "park"},
		{"DELETE", "delete"}, {"UPDATE", "fail"}, {"ROLLBACK TO", "back"},
		{"SAVEPOINT", "savepoint"},
	} {
		if strings.Contains(query, known.part) &&
			(known.name != "read" || !strings.HasPrefix(query, "INSERT")) {
			return known.name
		}
	}
	return query
}

func (c *fakeConn) QueryContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Rows, error) {
	statement := statementOf(query)
	if err := c.run(ctx, statement); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch statement {
	case "exists", "version":
		return rowsOf([]driver.Value{int64(2)}), nil
	case "next_due":
		return &fakeRows{}, nil
	case "holder":
		return rowIf(c.holder), nil
	case "holder_bytes":
		return rowIf(c.holderBytes), nil
	case "busy":
		return c.busy(args), nil
	case "top":
		return rowsOf([]driver.Value{c.top(number(args[0]))}), nil
	case "writers":
		top := int64(0)
		for no := range int64(shards) {
			top = max(top, c.top(no))
		}
		if c.blind {
			return rowsOf([]driver.Value{top, int64(0), ""}), nil
		}
		return rowsOf([]driver.Value{top, c.server, c.writers}), nil
	case "lock":
		return rowsOf([]driver.Value{c.lock(number(args[0]))}), nil
	case "read", "read_free":
		return c.read(query, args, statement == "read_free"), nil
	}
	return nil, errors.New("fake: no query: " + query)
}

func (c *fakeConn) top(no int64) (id int64) {
	for _, r := range c.rows {
		if r.shard == no && !r.parked {
			id = max(id, r.id)
		}
	}
	return id
}

func (c *fakeConn) busy(args []driver.NamedValue) driver.Rows {
	low := make([]int64, shards)
	if len(args) > 0 {
		low = numbers(args[0])
	}
	c.polled = append(c.polled, low...)
	var shards []int64
	for _, r := range c.rows {
		if !r.parked && r.id > low[r.shard] && !slices.Contains(shards, r.shard) {
			shards = append(shards, r.shard)
		}
	}
	all := &fakeRows{}
	for _, no := range shards {
		all.left = append(all.left, []driver.Value{no})
	}
	return all
}

func (c *fakeConn) lock(no int64) int64 {
	if c.fake.locks[no] {
		return 0
	}
	c.fake.locks[no] = true
	c.locks = append(c.locks, no)
	return c.server
}

// selected says whether a row is of the topics that a statement reads.
func selected(query, topic string, args []driver.NamedValue) bool {
	among := slices.ContainsFunc(args, func(v driver.NamedValue) bool { return v.Value == topic })
	return len(args) == 0 || among != strings.Contains(query, "topic NOT IN")
}

func (c *fakeConn) read(query string, args []driver.NamedValue, free bool) driver.Rows {
	no, limit, low := number(args[0]), number(args[1]), number(args[2])
	all := &fakeRows{}
	if limit > 1 && strings.Contains(query, "topic NOT IN") {
		c.lows = append(c.lows, low)
	}
	blocked := map[string]bool{}
	for _, r := range c.rows {
		held := r.until.After(time.Now())
		orderKey := r.Topic + " " + string(r.Key)
		blocked[orderKey] = blocked[orderKey] || held
		if r.shard != no || r.parked || r.id <= low || !selected(query, r.Topic, args[3:]) ||
			free && blocked[orderKey] || int64(len(all.left)) == limit {
			continue
		}
		flag := map[bool]int64{true: 1}[held]
		all.left = append(all.left, []driver.Value{
			r.id, r.Topic, r.ID, r.Key, encodeHeaders(r.Headers), r.Payload, r.attempts,
			flag, int64(0),
		})
	}
	return all
}

func (c *fakeConn) ExecContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Result, error) {
	statement := statementOf(query)
	if err := c.run(ctx, statement); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch statement {
	case "savepoint":
		c.saved = len(c.tx)
	case "back":
		c.tx = c.tx[:c.saved]
	case "delete":
		ids := numbers(args[1])
		c.tx = append(c.tx, func() {
			c.rows = slices.DeleteFunc(c.rows, func(r *fakeRow) bool {
				return !r.parked && slices.Contains(ids, r.id)
			})
		})
	case "park":
		id := number(args[2])
		if !slices.ContainsFunc(c.rows, func(r *fakeRow) bool { return r.id == id && !r.parked }) {
			return driver.RowsAffected(0), nil
		}
		c.tx = append(c.tx, func() {
			kept := *c.rows[slices.IndexFunc(c.rows, func(r *fakeRow) bool { return r.id == id })]
			kept.parked = true
			c.rows = append(c.rows, &kept)
		})
	case "fail":
		count, until, ids := number(args[0]),
			time.Now().Add(time.Duration(number(args[1]))*time.Microsecond), numbers(args[3])
		c.tx = append(c.tx, func() {
			for _, r := range c.rows {
				if slices.Contains(ids, r.id) {
					r.attempts, r.until = r.attempts+count, until
				}
			}
		})
	}
	return driver.RowsAffected(1), nil
}

func number(v driver.NamedValue) int64 { n, _ := v.Value.(int64); return n }

func numbers(v driver.NamedValue) (all []int64) {
	text, _ := v.Value.(string)
	for one := range strings.SplitSeq(strings.Trim(text, "{}"), ",") {
		n, _ := strconv.ParseInt(one, 10, 64)
		all = append(all, n)
	}
	return all
}

type fakeRows struct{ left [][]driver.Value }

func rowsOf(row []driver.Value) driver.Rows { return &fakeRows{[][]driver.Value{row}} }

func (r *fakeRows) Columns() []string {
	if len(r.left) == 0 {
		return make([]string, 9)
	}
	return make([]string, len(r.left[0]))
}
func (r *fakeRows) Close() error { return nil }
func (r *fakeRows) Next(into []driver.Value) error {
	if len(r.left) == 0 {
		return io.EOF
	}
	copy(into, r.left[0])
	r.left = r.left[1:]
	return nil
}
