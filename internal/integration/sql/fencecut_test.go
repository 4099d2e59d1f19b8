package sql_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/integration/internal/commitcut"
	"github.com/onceward/onceward/sqladapter"
)

// A fenceWay delivers a span until it succeeds. The ledger has offset 0 of its position as base.
type fenceWay struct {
	name string
	do   func(s *till, p sqladapter.Position, from, to, base int64) (sqladapter.Advance, error)
}

var fenceWays = []fenceWay{{"Do", (*till).byDo}, {"AdvanceTx", (*till).byTheBook}}

// TestFenceCommitCut is TestCommitCut for positions. A span whose COMMIT was cut is run again, by
// Do or by its caller. If COMMIT has arrived, this run finds the moved fence; if not, it has the
// effects.
func TestFenceCommitCut(t *testing.T) {
	for _, e := range cuttables(someModes) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newTill(t, e.engine)
			c, db := e.through(t)
			for i, w := range fenceWays {
				t.Run(w.name, func(t *testing.T) {
					through := *s
					through.t, through.db = t, db
					through.underCuts(c, w, int64(i*cutRounds*cutSpan))
				})
			}
			s.wantLedger(int64(len(fenceWays) * cutRounds * cutSpan))
		})
	}
}

// cutSpan is how many offsets a span has.
const cutSpan = 3

// underCuts has a cut in every round. Each kind falls on the first span of a position, whose row
// is new, as often as on its second.
func (s *till) underCuts(c *commitcut.Proxy, w fenceWay, base int64) {
	s.t.Helper()
	before := c.Cuts()
	for round := range cutRounds {
		p := sqladapter.Position{Topic: w.name, TopicID: "x",
			Partition: int32(round/12*6 + round%6)}
		from := int64(round / 6 % 2 * cutSpan)
		now := cutIn(round)
		c.Arm(now)
		got, err := w.do(s, p, from, from+cutSpan, base+int64(p.Partition)*2*cutSpan)
		again, found := sqladapter.Advance{Start: from, New: from == 0},
			sqladapter.Advance{Start: from + cutSpan}
		require.NoError(s.t, err, "round %d, %v: %+v", round, now.How, got)
		assert.False(s.t, now.How == commitcut.Undelivered && got != again, "round %d, %v: %+v",
			round, now.How, got)
		assert.False(s.t,
			now.How != commitcut.Undelivered && now.How != commitcut.Torn && got != found,
			"round %d, %v: %+v", round, now.How, got)
		s.wantNext(p, from+cutSpan)
	}
	c.WantCuts(s.t, before+cutRounds)
}

func (s *till) byDo(p sqladapter.Position, from, to, base int64) (sqladapter.Advance, error) {
	return s.Do(s.t.Context(), s.db, p, from,
		to, func(ctx context.Context, tx *sql.Tx, start int64) error {
			return s.record(ctx, tx, base+start, base+to)
		})
}

func (s *till) byTheBook(p sqladapter.Position, from, to, base int64) (got sqladapter.Advance,
	err error) {
	for range maxDeliveries {
		if got, err = s.deliver(p, from, to, base); err == nil || !sqladapter.Retryable(err) {
			break
		}
	}
	return got, err
}

func (s *till) deliver(p sqladapter.Position, from, to, base int64) (sqladapter.Advance, error) {
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	if err != nil {
		return sqladapter.Advance{}, err
	}
	defer func() { _ = tx.Rollback() }()
	got, err := s.AdvanceTx(s.t.Context(), tx, p, from, to)
	if err != nil {
		return got, err
	}
	if err := s.record(s.t.Context(), tx, base+got.Start, base+to); err != nil {
		return got, err
	}
	return got, tx.Commit()
}
