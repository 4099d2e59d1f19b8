package outbox

import (
	"database/sql"
	"errors"
	"time"
)

// row is a message with the other columns of its row.
type row struct {
	Message
	id       int64
	attempts int
	held     bool // its retry time has not come
	bad      error
}

// orderKey identifies messages that keep an order: those of one topic and key.
type orderKey struct{ topic, key string }

func (r *row) orderKey() orderKey { return orderKey{r.Topic, string(r.Key)} }

// selection is the part of a shard to read.
type selection struct {
	shard, limit int
	low          int64    // only ids above it
	topics       []string // without these
	only         string   // only this one, if it is not empty
}

// read takes the oldest messages of the selection. When most of them wait, it reads again without
// those that wait, and left says so.
func (r *Relay) read(l *locked, where selection) (rows []row, full, left bool, err error) {
	rows, full, err = r.query(l, r.statements.read, where)
	if err != nil || !full || free(rows) > len(rows)/2 {
		return rows, full, false, err
	}
	rows, full, err = r.query(l, r.statements.readFree, where)
	return rows, full, true, err
}

// free counts the rows that pick would send.
func free(rows []row) int {
	n := 0
	blocked := map[orderKey]bool{}
	for i := range rows {
		row := &rows[i]
		keyed := len(row.Key) > 0
		if !row.held && (!keyed || !blocked[row.orderKey()]) {
			n++
		}
		if keyed && (row.held || row.attempts > 0) {
			blocked[row.orderKey()] = true
		}
	}
	return n
}

func (r *Relay) query(l *locked, text string, where selection) (found []row, full bool, err error) {
	query, args := r.box.dialect.selecting(text, where)
	rows, err := l.reader.QueryContext(l.ctx, query, args...)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = rows.Close() }()
	found = make([]row, 0, where.limit)
	bytes := 0
	for bytes < r.cfg.BatchBytes && rows.Next() {
		got, size, err := r.scan(rows)
		if err != nil {
			return nil, false, err
		}
		found = append(found, got)
		bytes += size
	}
	if err := rows.Err(); err != nil {
		return nil, false, err
	}
	// If the connection breaks while the other rows are discarded, the next statement fails.
	return found, len(found) == where.limit || bytes >= r.cfg.BatchBytes, nil
}

// top is the newest id of a shard, or zero.
func (r *Relay) top(l *locked, no int) (id int64, err error) {
	return id, l.reader.QueryRowContext(l.ctx, r.statements.top, no).Scan(&id)
}

// scan reads one row. Headers that cannot be read are an error of that message alone, because one
// bad row must not hold up the others forever.
func (r *Relay) scan(rows *sql.Rows) (row, int, error) {
	var got row
	var headers []byte
	var held, null int
	if err := rows.Scan(&got.id, &got.Topic, &got.ID, &got.Key, &headers, &got.Payload,
		&got.attempts, &held, &null); err != nil {
		return got, 0, err
	}
	size := len(got.Key) + len(headers) + len(got.Payload)
	got.held = held != 0
	got.tidy(null != 0)
	got.Headers, got.bad = decodeHeaders(headers)
	got.Headers = append(got.Headers, Header{Key: r.box.idHeader, Value: []byte(got.ID)})
	return got, size, nil
}

// tidy restores the difference between nil and empty, which not every driver keeps.
func (m *Message) tidy(noPayload bool) {
	if len(m.Key) == 0 {
		m.Key = nil
	}
	if m.Payload == nil && !noPayload {
		m.Payload = []byte{}
	}
}

// batch has the messages of one call of the publisher.
type batch struct {
	rows     []*row
	messages []Message
	refused  []failure // not sent, because they were refused before
}

// failure is a message that was not acknowledged.
type failure struct {
	row   *row
	err   error
	delay time.Duration // of a message that waits for its topic
	// checked says that a Checker refused it before it was sent, and would refuse it each time: it
	// is parked at once.
	checked bool
}

// pick leaves out the messages that must wait. A failed message waits until its time has come, and
// the later ones of its key wait with it. They also wait while it is tried again, until it is
// acknowledged: it may fail again, and they would overtake it.
func (r *Relay) pick(rows []row) *batch {
	b := &batch{rows: make([]*row, 0, len(rows)), messages: make([]Message, 0, len(rows))}
	checker, _ := r.cfg.Publisher.(Checker)
	blocked := map[orderKey]bool{}
	for i := range rows {
		row := &rows[i]
		if len(blocked) > 0 && len(row.Key) > 0 && blocked[row.orderKey()] {
			continue
		}
		bad := row.bad
		if bad == nil && !row.held {
			bad = refusal(checker, &row.Message)
		}
		if (row.held || bad != nil || row.attempts > 0) && len(row.Key) > 0 {
			blocked[row.orderKey()] = true
		}
		switch {
		case row.held:
		case bad != nil:
			b.refused = append(b.refused, failure{row: row, err: Reject(bad), checked: true})
		default:
			b.rows = append(b.rows, row)
			b.messages = append(b.messages, row.Message)
		}
	}
	return b
}

// publishResult says what to do with the messages of a batch.
type publishResult struct {
	acknowledged []int64
	failed       []failure // these count against the message itself: the first of each key
	overtaken    []failure
	// waiting has the first message of each key if none of the sent messages was acknowledged, and
	// whole is the error of one of them. The error does not count as a failure of a message,
	// because the topic is the likely reason. The messages wait nevertheless: if only they fail,
	// those behind them need a turn, too.
	waiting []failure
	whole   error
	topics  []*TopicError
}

func (v *publishResult) empty() bool {
	return len(v.acknowledged)+len(v.failed)+len(v.waiting) == 0
}

// add adds the results of another batch.
func (v *publishResult) add(other *publishResult) {
	v.acknowledged = append(v.acknowledged, other.acknowledged...)
	v.failed = append(v.failed, other.failed...)
	v.overtaken = append(v.overtaken, other.overtaken...)
	v.waiting = append(v.waiting, other.waiting...)
	v.topics = append(v.topics, other.topics...)
}

// judge turns results into a publishResult. Of each key it counts the acknowledged messages up to
// the first that is not acknowledged.
func (b *batch) judge(results []error) *publishResult {
	v := &publishResult{acknowledged: make([]int64, 0, len(b.rows))}
	broken := map[orderKey]error{}
	for i, err := range results {
		row := b.rows[i]
		var before error
		if len(broken) > 0 && len(row.Key) > 0 {
			before = broken[row.orderKey()]
		}
		switch {
		case err == nil && before == nil:
			v.acknowledged = append(v.acknowledged, row.id)
		case err == nil:
			v.overtaken = append(v.overtaken, failure{row: row, err: before})
		case before == nil:
			v.failed = append(v.failed, failure{row: row, err: err})
			broken[row.orderKey()] = err
		}
	}
	if len(v.acknowledged) == 0 {
		v.excuse()
	}
	v.failed = append(v.failed, b.refused...)
	return v
}

// excuse moves messages from failed to waiting, except those that the broker has rejected and those
// that have failed before.
func (v *publishResult) excuse() {
	all := v.failed
	v.failed = nil
	for _, f := range all {
		if errors.Is(f.err, ErrRejected) || f.row.attempts > 0 {
			v.failed = append(v.failed, f)
			continue
		}
		v.waiting = append(v.waiting, f)
		if v.whole == nil {
			v.whole = f.err
		}
	}
}
