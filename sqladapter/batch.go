package sqladapter

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// MarkBatchTx is [Ledger.MarkTx] for many keys in one statement, and a second one when
// there are duplicates; with MySQL a third one for the results of these. The marks are in the
// order of the requests.
//
// One bad request does not fail the batch: its Mark carries Err, as does a mismatch. A
// key that occurs twice is marked once; the later ones are duplicates of the first. An
// error of the call means that the transaction must be rolled back and no mark counts.
// An empty batch runs no statement.
//
// Keys are inserted in the order of their digests, so that overlapping batches wait for each other
// and do not deadlock. A deadlock is still possible in three cases, and is a [Retryable] error. The
// first is MySQL, when a transaction that has marked the same keys rolls back. The second is
// several calls in one transaction, because they have no common order. The third is MySQL above
// READ COMMITTED: a transaction that meets a duplicate without a result locks the gap where that
// would be, and two such transactions that save results deadlock. [Ledger.DoBatch] avoids the
// third. A batch holds its keys until the transaction ends: a few hundred keys are best, thousands
// are only held longer.
func (m *Ledger) MarkBatchTx(ctx context.Context, tx Tx, reqs []dedup.Request) ([]Mark, error) {
	if err := m.ready(); err != nil {
		return nil, err
	}
	if err := m.checkTx(tx); err != nil {
		return nil, err
	}
	b := newBatch(len(reqs))
	for i := range reqs {
		e, err := m.digest(&reqs[i])
		b.add(i, e, err)
	}
	b.sort()
	if len(b.order) == 0 {
		return b.marks, nil
	}
	if err := m.checkOpen(ctx, tx); err != nil {
		return nil, m.unlearnt(err).Err
	}
	if err := m.markBatch(ctx, tx, b); err != nil {
		return nil, err
	}
	// The caller's snapshot may be older than the results.
	if err := m.readResults(ctx, tx, b, true); err != nil {
		return nil, err
	}
	return b.marks, nil
}

func (m *Ledger) markBatch(ctx context.Context, tx Tx, b *batch) error {
	rows, err := m.settleBoth(ctx, tx, b.firsts, true)
	if err == nil {
		err = m.checkIDs(ctx, tx)
	}
	if err != nil {
		return m.unlearnt(err).Err
	}
	b.judge(rows)
	return nil
}

// readResults reads the results of the duplicates whose marks were read without them. Before the
// effect it reads with locks. After the effect it needs none, and so cannot deadlock.
func (m *Ledger) readResults(ctx context.Context, tx Tx, b *batch, locked bool) error {
	if err := m.giveResults(ctx, tx, b, b.unread, locked); err != nil || m.previous == nil {
		return err
	}
	return m.previous.giveResults(ctx, tx, b, inPrevious(b.unreadPrevious), locked)
}

// giveResults reads the results of es from the table of m.
func (m *Ledger) giveResults(ctx context.Context, tx Tx, b *batch, es []entry, locked bool) error {
	for chunk := range slices.Chunk(es, m.dialect.chunk) {
		rows, err := queryRows(ctx, tx, m.dialect.results(chunk, locked), len(chunk),
			(*columns).resultAlone)
		if err != nil {
			return m.unlearnt(err).Err
		}
		b.give(rows)
	}
	return nil
}

// batch has the requests of a call, and which of them ask for the same key.
type batch struct {
	marks   []Mark
	entries []entry
	// order has the positions of the good requests, sorted by id; the positions of one id ascend.
	order []int
	// firsts has the first entry of every id, ascending.
	firsts []entry
	// unread are the entries of duplicates whose results were not read with their marks.
	unread []entry
	// unreadPrevious are such entries that are in the previous table.
	unreadPrevious []entry
}

// newBatch returns a batch of n requests, which add gives it before sort is called.
func newBatch(n int) *batch {
	return &batch{marks: make([]Mark, n), entries: make([]entry, n), order: make([]int, 0, n)}
}

// add sets the i-th request, or says why it is bad.
func (b *batch) add(i int, e entry, err error) {
	if err != nil {
		b.marks[i].Err = err
		return
	}
	b.entries[i] = e
	b.order = append(b.order, i)
}

// sort puts the requests in order. Without it two transactions that insert overlapping ids in
// different orders would each hold what the other waits for.
func (b *batch) sort() {
	slices.SortFunc(b.order, func(i, j int) int {
		return cmp.Or(bytes.Compare(b.entries[i].id[:], b.entries[j].id[:]), i-j)
	})
	b.firsts = make([]entry, 0, len(b.order))
	for n, i := range b.order {
		if b.isFirst(n) {
			b.firsts = append(b.firsts, b.entries[i])
		}
	}
}

// isFirst reports whether no request before the n-th of the order has its id.
func (b *batch) isFirst(n int) bool {
	return n == 0 || b.entries[b.order[n-1]].id != b.entries[b.order[n]].id
}

// forget drops what an earlier try has learned of the good requests.
func (b *batch) forget() {
	for _, i := range b.order {
		b.marks[i] = Mark{}
	}
	b.unread, b.unreadPrevious = b.unread[:0], b.unreadPrevious[:0]
}

// judge sets the marks; rows are those of b.firsts. Of several requests for an id, only the first
// position can run the effect.
func (b *batch) judge(rows []*row) {
	id := -1
	for n, i := range b.order {
		first := b.isFirst(n)
		if first {
			id++
		}
		e, r := &b.entries[i], rows[id]
		b.marks[i] = judge(r, e.fingerprint, r.ours && first)
		switch {
		case !r.unread || r.ours || !first:
		case r.inPrevious:
			b.unreadPrevious = append(b.unreadPrevious, *e)
		default:
			b.unread = append(b.unread, *e)
		}
	}
}

// give gives the duplicates their results.
func (b *batch) give(rows []row) {
	results := make(map[driver.ID][]byte, len(rows))
	for _, r := range rows {
		results[r.id] = r.result
	}
	for _, i := range b.order {
		result, ok := results[b.entries[i].id]
		if !ok {
			result, ok = results[b.entries[i].previous]
		}
		if ok && b.marks[i].Outcome == dedup.Duplicate {
			b.marks[i].Result = result
		}
	}
}
