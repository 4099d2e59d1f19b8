package sqladapter

import (
	"bytes"
	"context"
	"slices"

	"github.com/onceward/onceward/dedup"
)

// MarkBatchTx is [Marks.MarkTx] for many keys in one statement, and a second one when
// there are duplicates (SQLite: one or two for each key). The marks are in the order of
// the requests.
//
// One bad request does not fail the batch: its Mark carries Err, as does a mismatch. A
// key that occurs twice is marked once; the later ones are duplicates of the first. An
// error of the call means that the transaction must be rolled back and no mark counts.
// An empty batch runs no statement.
//
// Keys are inserted in the order of their digests, so that overlapping batches wait for
// each other and do not deadlock. Several calls in one transaction have no common order
// and still can: that is a [Retryable] error. A batch holds its keys until the
// transaction ends; a few hundred are the best trade, thousands only hold them longer.
func (m *Marks) MarkBatchTx(ctx context.Context, tx Tx, reqs []dedup.Request) ([]Mark, error) {
	if err := m.ready(); err != nil {
		return nil, err
	}
	if err := m.checkTx(tx); err != nil {
		return nil, err
	}
	b := m.newBatch(reqs)
	if len(b.places) == 0 {
		return b.marks, nil
	}
	if err := m.checkOpen(ctx, tx); err != nil {
		return nil, unlearnt(err).Err
	}
	return m.markBatch(ctx, tx, b)
}

func (m *Marks) markBatch(ctx context.Context, tx Tx, b *batch) ([]Mark, error) {
	for chunk := range slices.Chunk(b.sorted(), m.dialect.chunk) {
		rows, err := m.settle(ctx, tx, chunk)
		if err != nil {
			return nil, unlearnt(err).Err
		}
		b.judge(rows)
	}
	return b.marks, nil
}

// batch keeps which requests ask for the same key.
type batch struct {
	marks   []Mark
	entries []entry
	places  map[dedup.ID][]int // positions of the requests for an id, ascending
}

func (m *Marks) newBatch(reqs []dedup.Request) *batch {
	b := &batch{
		marks:   make([]Mark, len(reqs)),
		entries: make([]entry, len(reqs)),
		places:  make(map[dedup.ID][]int, len(reqs)),
	}
	for i, req := range reqs {
		e, err := m.digest(req)
		if err != nil {
			b.marks[i].Err = err
			continue
		}
		b.entries[i] = e
		b.places[e.id] = append(b.places[e.id], i)
	}
	return b
}

// sorted returns the first entry of every id in ascending order. Two transactions that
// insert overlapping ids in different orders each hold what the other waits for.
func (b *batch) sorted() []entry {
	es := make([]entry, 0, len(b.places))
	for _, places := range b.places {
		es = append(es, b.entries[places[0]])
	}
	slices.SortFunc(es, func(a, b entry) int { return bytes.Compare(a.id[:], b.id[:]) })
	return es
}

// judge: of several requests for an id the first position alone can be the one that runs.
func (b *batch) judge(rows map[dedup.ID]row) {
	for id, r := range rows {
		for n, i := range b.places[id] {
			b.marks[i] = judge(r, b.entries[i].fingerprint, n == 0 && r.ours)
		}
	}
}
