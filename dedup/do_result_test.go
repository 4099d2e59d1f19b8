package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

type receipt struct {
	ID     string
	Amount int
	When   *time.Time
	Lines  []string
}

// replay runs Do twice and insists that the second call gets the value of the first.
func replay[T any](t *testing.T, value T, stored []byte) {
	t.Helper()
	store := dedup.Memory(10)
	d := newDeduper(t, store, nil)
	runs := 0
	for call := range 2 {
		res, err := dedup.DoResult(t.Context(), d, "k", func(context.Context) (T, error) {
			runs++
			return value, nil
		})
		require.NoError(t, err, "call %d", call)
		require.Equal(t, value, res.Value, "call %d", call)
	}
	require.Equal(t, 1, runs)
	rec := lookup(t, store, "k")
	require.Equal(t, stored, rec.Result)
	require.Equal(t, stored == nil, rec.Result == nil)
}

type named []byte

func TestDoReplaysEveryKindOfResult(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	t.Run("bytes", func(t *testing.T) { replay(t, []byte("\x00\xff raw"), []byte("\x00\xff raw")) })
	// Nil bytes are a value, not a missing one. They come back as empty bytes.
	t.Run("nil bytes", func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		for range 2 {
			res, err := dedup.DoResult(t.Context(), d, "k", func(context.Context) ([]byte, error) {
				return nil, nil
			})
			require.NoError(t, err)
			assert.Empty(t, res.Value)
		}
	})
	t.Run("empty bytes", func(t *testing.T) { replay(t, []byte{}, []byte{}) })
	t.Run("string", func(t *testing.T) { replay(t, "häß\x00", []byte("häß\x00")) })
	t.Run("empty string", func(t *testing.T) { replay(t, "", []byte{}) })
	t.Run("nothing", func(t *testing.T) { replay(t, struct{}{}, nil) })
	t.Run("struct", func(t *testing.T) {
		replay(t, receipt{"r", 7, &when, []string{"a"}},
			[]byte(`{"ID":"r","Amount":7,"When":"2026-01-02T03:04:05Z","Lines":["a"]}`))
	})
	t.Run("pointer", func(t *testing.T) {
		replay(t, &receipt{ID: "r"}, []byte(`{"ID":"r","Amount":0,"When":null,"Lines":null}`))
	})
	t.Run("nil pointer", func(t *testing.T) { replay(t, (*receipt)(nil), []byte("null")) })
	t.Run("number", func(t *testing.T) { replay(t, 42, []byte("42")) })
	t.Run("map", func(t *testing.T) { replay(t, map[string]int{"a": 1}, []byte(`{"a":1}`)) })
	t.Run("named bytes", func(t *testing.T) { replay(t, named("x"), []byte(`"eA=="`)) })
	// An interface is stored by its own type, not by the type of the value in it, because the
	// replay knows only the interface.
	t.Run("interface of string", func(t *testing.T) { replay[any](t, "s", []byte(`"s"`)) })
	t.Run("nil interface", func(t *testing.T) { replay[any](t, nil, []byte("null")) })
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no JSON today") }

// The effect has happened. It must not happen again only because its value cannot be kept.
func testNotKept[T any](t *testing.T, value T) {
	t.Helper()
	store := dedup.Memory(10)
	d := newDeduper(t, store, func(c *dedup.Config) { c.ResultLimit = 100 })
	res, err := dedup.DoResult(t.Context(), d, "k", func(context.Context) (T, error) {
		return value, nil
	})
	require.NoError(t, err)
	require.Equal(t, dedup.Acquired, res.Outcome, "the call that has the value")
	rec := wantState(t, store, "k", driver.StateSucceeded)
	require.True(t, rec.NoResult, "record %+v", rec)
	require.Nil(t, rec.Result)
	res, err = dedup.DoResult(t.Context(), d, "k", func(context.Context) (T, error) {
		t.Error("ran again")
		return value, nil
	})
	require.ErrorIs(t, err, dedup.ErrNoResult)
	require.Equal(t, dedup.Duplicate, res.Outcome, "the replay")
	require.True(t, !dedup.CanRetry(err) && !dedup.OutcomeUnknown(err), "the replay: %v, %v",
		res.Outcome, err)
}

func TestDoRecordsWithoutAResultThatCannotBeKept(t *testing.T) {
	t.Run("channel", func(t *testing.T) { testNotKept(t, make(chan int)) })
	t.Run("func", func(t *testing.T) { testNotKept(t, func() {}) })
	t.Run("too large", func(t *testing.T) { testNotKept(t, strings.Repeat("x", 101)) })
	t.Run("panics", func(t *testing.T) { testNotKept(t, panics{}) })
}

func TestResultOfExactlyTheLimitIsKept(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), func(c *dedup.Config) { c.ResultLimit = 100 })
	want := strings.Repeat("x", 100)
	for range 2 {
		res, err := do(t, d, "k", returns(want))
		require.NoError(t, err)
		require.Equal(t, want, res.Value)
	}
}

// A program that changed its type must not loop on the message forever, nor take the
// zero value for the answer.
func TestDoOfAnotherTypeIsUnreadable(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), nil)
	_, err := do(t, d, "k", returns("not JSON"))
	require.NoError(t, err)
	res, err := dedup.DoResult(t.Context(), d, "k", func(context.Context) (receipt, error) {
		t.Error("ran again")
		return receipt{}, nil
	})
	require.ErrorIs(t, err, driver.ErrUnreadable)
	require.Equal(t, dedup.Duplicate, res.Outcome)
	require.False(t, dedup.CanRetry(err))
}

// A key that ended without a result is done, and there is no value to return. A zero receipt with a
// nil error would look like a real receipt.
func TestDoOverAMarkHasNoResult(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *dedup.Deduper){
		"Mark": func(t *testing.T, d *dedup.Deduper) { mark(t, d, "k") },
		"Complete": func(t *testing.T, d *dedup.Deduper) {
			require.NoError(t, acquire(t, d, "k").Complete(t.Context(), nil))
		},
		"Resolve": func(t *testing.T, d *dedup.Deduper) {
			_, err := do(t, d, "k", dangerous(t, func() error { return errBusy }))
			require.ErrorIs(t, err, errBusy)
		},
	} {
		for _, cache := range []int{0, 64 << 10} {
			t.Run(fmt.Sprintf("%s, cache of %d", name, cache), func(t *testing.T) {
				d := newDeduper(t, dedup.Memory(10), func(c *dedup.Config) {
					c.CacheBytes = cache
					c.Resolve = func(context.Context, string, dedup.Record) (dedup.Resolution,
						error) {
						return dedup.Happened(nil), nil
					}
				})
				end(t, d)
				for range 2 {
					wantNoResult(t, d, receipt{})
					wantNoResult(t, d, &receipt{})
					wantNoResult(t, d, "")
					wantNoResult(t, d, []byte{})
					res, err := dedup.DoResult(t.Context(), d, "k",
						func(context.Context) (struct{}, error) {
							return struct{}{}, errors.New("ran")
						})
					require.NoError(t, err)
					assert.Equal(t, dedup.Duplicate, res.Outcome)
				}
			})
		}
	}
}

func wantNoResult[T any](t *testing.T, d *dedup.Deduper, value T) {
	t.Helper()
	res, err := dedup.DoResult(t.Context(), d, "k", func(context.Context) (T, error) {
		return value, errors.New("ran")
	})
	require.ErrorIs(t, err, dedup.ErrNoResult, "a %T", value)
	assert.True(t, dedup.CanAck(err))
	assert.Equal(t, dedup.Duplicate, res.Outcome)
}

func TestReplayedBytesBelongToTheirCaller(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), func(c *dedup.Config) { c.CacheBytes = 64 << 10 })
	value := []byte("abc")
	get := func() []byte {
		res, err := dedup.DoResult(t.Context(), d, "k", func(context.Context) ([]byte, error) {
			return value, nil
		})
		require.NoError(t, err)
		return res.Value
	}
	get()
	value[0] = 'X' // the handler's slice
	for range 3 {
		got := get()
		require.Equal(t, "abc", string(got))
		got[0] = 'Y' // a caller's slice
	}
}
