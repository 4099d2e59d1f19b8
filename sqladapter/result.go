package sqladapter

import (
	"context"
	"fmt"

	"github.com/onceward/onceward/dedup"
)

// SaveResultTx keeps what the effect of key has returned, in the transaction that has marked key
// and holds the effect. A duplicate finds it in [Mark.Result], byte for byte, until
// [Ledger.DeleteExpired] removes both. Call it once for a key, when its mark is the first: inside
// the effect of [Ledger.Do] and [Ledger.DoBatch], or after [Ledger.MarkTx]. An empty result comes
// back as nil, as if there were none.
//
// A result that is larger than [Config.ResultLimit] is a [*dedup.InputError], before any statement.
// So is a key that is not marked, or already has a result; the transaction stays usable. It cannot
// tell who made the mark: the caller must not call it for a duplicate. After any other error roll
// back, as for MarkTx.
//
// With MySQL a transaction of the caller's own should be READ COMMITTED: see [Ledger.MarkBatchTx].
//
// Of the options only the scope counts, as in MarkTx. One round trip. Reading duplicates also reads
// their results: keep batches small where results are large.
func (m *Ledger) SaveResultTx(ctx context.Context, tx Tx, key string, result []byte,
	opts ...dedup.Option) error {
	e, err := m.entry(key, opts)
	if err != nil {
		return err
	}
	if err := m.checkTx(tx); err != nil {
		return err
	}
	if len(result) > m.limit {
		return inputError("result",
			fmt.Sprintf("has %d bytes, more than ResultLimit, which is %d", len(result), m.limit))
	}
	if result == nil {
		result = []byte{} // would be NULL
	}
	d, err := m.statements(ctx, tx)
	if err != nil {
		return m.unlearnt(err).Err
	}
	n, err := m.change(ctx, tx, d.save(e, result))
	if p := m.previous; p != nil && err == nil && n == 1 {
		_, err = p.change(ctx, tx, p.dialect.save(entry{id: e.previous}, result))
	}
	if err != nil {
		return m.unlearnt(m.rotated(d, err)).Err
	}
	if n != 1 {
		return inputError("key", "is not marked, or has a result already")
	}
	return nil
}

// change runs a statement and returns how many rows it has changed.
func (m *Ledger) change(ctx context.Context, tx Tx, s statement) (int64, error) {
	if m.dialect.counts {
		return exec(ctx, tx, s)
	}
	rows, err := queryRows(ctx, tx, s, 1, (*columns).idAlone)
	return int64(len(rows)), err
}
