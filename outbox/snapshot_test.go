package outbox

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// holding is an answer about the oldest snapshot.
func holding(age time.Duration) []driver.Value {
	return []driver.Value{"session", "4711", age.Microseconds(), "report", "psql",
		"idle in transaction", "SELECT secret"}
}

// Polls that find nothing take a tenth of the time at the most, however long one takes, and however
// often Notify asks for one.
func TestPollsCostATenth(t *testing.T) {
	for name, notify := range map[string]bool{"by itself": false, "by signals": true} {
		t.Run(name, func(t *testing.T) {
			const cost, total = 30 * time.Millisecond, time.Minute
			s := &sender{}
			runRelay(t, nil, s, func(_ *RelayConfig, f *fake) {
				f.slow["busy"] = cost
			}, func(r *Relay, f *fake) {
				for began := time.Now(); time.Since(began) < total; after(3 * time.Millisecond) {
					if notify {
						r.box.Notify()
					}
				}
				polls := f.ran("busy")
				assert.LessOrEqual(t, polls, int(total/(11*cost))+2)
				assert.Greater(t, polls, 30)
			})
		})
	}
}

// Rows that are dead make polls slow. The relay learns up to which id the shards are empty, once
// the transactions that insert have ended, and begins its reads and polls there. A message that is
// committed late, with a smaller id than those that were read, is published.
func TestReadsBeginBehindDeadRows(t *testing.T) {
	s := &sender{}
	runRelay(t, messagesOf("a/0", "a/1", "b/0"), s, func(_ *RelayConfig, f *fake) {
		f.writers = "3/77"
		f.slow["busy"] = costly
	}, func(_ *Relay, f *fake) {
		after(10 * time.Second)
		f.mu.Lock()
		assert.Zero(t, slices.Max(f.polled), "a transaction that inserts has not ended")
		f.rows = append(f.rows, &fakeRow{Message: Message{ID: "late", Topic: "t"}, id: 1, shard: 5})
		f.writers = ""
		f.mu.Unlock()
		after(10 * time.Second)
		assert.ElementsMatch(t, []string{"a/0", "a/1", "b/0", "late"}, s.got())
		f.add(messagesOf("a/2")[0])
		after(10 * time.Second)
		assert.Contains(t, s.got(), "a/2")
		f.mu.Lock()
		defer f.mu.Unlock()
		last := f.polled[len(f.polled)-shards:]
		assert.Equal(t, slices.Repeat([]int64{3}, shards), last, "the polls begin there")
	})
}

// After a restart of the server ids may be given out again: reads begin at the beginning.
func TestDeadRowsOfAnotherServer(t *testing.T) {
	s := &sender{}
	runRelay(t, messagesOf("a/0", "a/1", "b/0"), s, func(_ *RelayConfig, f *fake) {
		f.slow["busy"] = costly
	}, func(_ *Relay, f *fake) {
		after(10 * time.Second)
		f.mu.Lock()
		f.server = 2
		again := Message{ID: "again", Topic: "t"}
		f.rows = append(f.rows, &fakeRow{Message: again, id: 2, shard: 5})
		f.mu.Unlock()
		after(10 * time.Second)
		assert.Contains(t, s.got(), "again")
	})
}

// The transaction that holds an old snapshot is named once in a minute, when polls are slow.
func TestSnapshotError(t *testing.T) {
	for name, tt := range map[string]struct {
		cost   time.Duration
		holder []driver.Value
		want   int
	}{
		"slow and old":   {slowPoll, holding(time.Hour), 3},
		"slow and young": {slowPoll, holding(time.Second), 0},
		"slow and alone": {slowPoll, nil, 0},
		"fast and old":   {slowPoll / 2, holding(time.Hour), 0},
	} {
		t.Run(name, func(t *testing.T) {
			told := runRelay(t, nil, &sender{}, func(_ *RelayConfig, f *fake) {
				f.slow["busy"], f.holder = tt.cost, tt.holder
			}, func(*Relay, *fake) { after(150 * time.Second) })
			require.Len(t, told, tt.want)
			for _, err := range told {
				var slow *SnapshotError
				require.True(t, errors.As(err, &slow))
				assert.Equal(t, Snapshot{Kind: "session", Name: "4711", Age: time.Hour,
					User: "report", Application: "psql", State: "idle in transaction",
					Query: "SELECT secret"}, slow.Snapshot)
				assert.Equal(t, slowPoll, slow.Poll)
				assert.NotContains(t, err.Error(), "secret")
				assert.Contains(t, err.Error(), "session 4711 of user \"report\"")
			}
		})
	}
}

// MySQLError looks like the error of go-sql-driver.
type MySQLError struct{ Number uint16 }

func (e *MySQLError) Error() string { return fmt.Sprint("Error ", e.Number) }

// While a statement with bytes that are not UTF-8 runs, MySQL does not show innodb_trx. The
// performance_schema is asked, and both are asked ten times.
func TestOldestSnapshotNextToBytes(t *testing.T) {
	const noProcess, noSelect = 1227, 1142
	for name, tt := range map[string]struct {
		number uint16 // of the error of innodb_trx
		fails  int
		other  []driver.Value // the answer of performance_schema
		denied bool           // or its error
		tries  int
		want   []uint16 // errors
	}{
		"a short statement":  {number: 3854, fails: 9, tries: 10},
		"a long statement":   {number: 3854, fails: 10, tries: 10, want: []uint16{3854}},
		"performance_schema": {number: 3854, fails: 10, other: holding(time.Hour), tries: 1},
		"without a right there": {number: 3854, fails: 10, denied: true, tries: 10,
			want: []uint16{3854, noSelect}},
		"without the right":  {number: noProcess, fails: 1, tries: 1, want: []uint16{noProcess}},
		"nothing in the way": {tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOutbox(t, MySQL)
				f, db := openFake(t, o)
				f.holder, f.holderBytes = holding(time.Hour), tt.other
				tries := 0
				f.fail = func(statement string) error {
					switch {
					case statement == "holder":
						if tries++; tries <= tt.fails {
							return &MySQLError{tt.number}
						}
					case statement == "holder_bytes" && tt.denied:
						return &MySQLError{noSelect}
					}
					return nil
				}
				s, err := o.OldestSnapshot(t.Context(), db)
				assert.Equal(t, tt.tries, tries)
				for _, number := range tt.want {
					assert.ErrorContains(t, err, fmt.Sprint("Error ", number))
				}
				if tt.want == nil {
					require.NoError(t, err)
					assert.Equal(t, "4711", s.Name)
				}
			})
		})
	}
}
