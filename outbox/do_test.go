package outbox

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ledgerFake records keys in memory. Its transactions are recorders. It runs each one tries times,
// and commits only the last one.
type ledgerFake struct {
	done  map[string]bool
	tries int
	err   error // of COMMIT
	txs   []*recorder
}

func (l *ledgerFake) Do(ctx context.Context, _ *sql.DB, key string,
	effect func(ctx context.Context, tx *recorder) error, suffix ...string) (string, error) {
	for _, s := range suffix {
		key += s
	}
	if l.done[key] {
		return "duplicate of " + key, nil
	}
	for range max(1, l.tries) {
		l.txs = append(l.txs, &recorder{})
		if err := effect(ctx, l.txs[len(l.txs)-1]); err != nil {
			return "", err
		}
	}
	l.done[key] = true
	return "first of " + key, l.err
}

// isWoken reports whether a relay of the outbox was woken since it was asked last.
func isWoken(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

func TestDo(t *testing.T) {
	box := newOutbox(t, Postgres)
	wake, stop := box.relays.add()
	defer stop()
	errLost := errors.New("the answer to COMMIT was lost")
	errEffect := errors.New("out of stock")
	one := []Message{{ID: "a", Topic: "t"}}
	for name, tt := range map[string]struct {
		ledger   ledgerFake
		returns  []Message
		fails    error
		record   string
		err      error
		inserted int // in the last transaction
		woken    bool
	}{
		"first": {returns: one, record: "first of k/1", inserted: 1, woken: true},
		"duplicate": {ledger: ledgerFake{done: map[string]bool{"k/1": true}}, returns: one,
			record: "duplicate of k/1"},
		"no message":   {record: "first of k/1"},
		"effect fails": {returns: one, fails: errEffect, err: errEffect},
		"lost COMMIT": {ledger: ledgerFake{err: errLost}, returns: one, record: "first of k/1",
			err: errLost, inserted: 1, woken: true},
		"run again": {ledger: ledgerFake{tries: 2}, returns: one, record: "first of k/1",
			inserted: 1, woken: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := tt.ledger
			if l.done == nil {
				l.done = map[string]bool{}
			}
			record, err := Do(t.Context(), box, &l, nil, "k",
				func(_ context.Context, tx *recorder) ([]Message, error) {
					require.Empty(t, tx.queries, "the messages come after the effect")
					return tt.returns, tt.fails
				}, "/1")
			require.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.record, record)
			assert.Equal(t, tt.woken, isWoken(wake))
			statements := 0
			if len(l.txs) > 0 {
				statements = len(l.txs[len(l.txs)-1].queries)
			}
			assert.Equal(t, tt.inserted, statements)
		})
	}
}

func TestDoRefuses(t *testing.T) {
	box := newOutbox(t, Postgres)
	effect := func(context.Context, *recorder) ([]Message, error) { return nil, nil }
	l := &ledgerFake{done: map[string]bool{}}
	for field, call := range map[string]func() (string, error){
		"Outbox": func() (string, error) { return Do(t.Context(), nil, l, nil, "k", effect) },
		"ledger": func() (string, error) {
			return Do(t.Context(), box, (*ledgerFake)(nil), nil, "k", effect)
		},
		"effect": func() (string, error) {
			return Do[*sql.DB, *recorder](t.Context(), box, l, nil, "k", nil)
		},
		"messages[0].Topic": func() (string, error) {
			return Do(t.Context(), box, l, nil, "k",
				func(context.Context, *recorder) ([]Message, error) {
					return make([]Message, 1), nil
				})
		},
	} {
		_, err := call()
		var input *InputError
		require.ErrorAs(t, err, &input, field)
		assert.Equal(t, field, input.Field)
	}
	assert.Empty(t, l.done)
}
