package kafka_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// takesOver makes a member claim at once what an older generation holds.
func takesOver(mc *memberConfig) { mc.Allow.TakeOver = true }

// overlap has one message on each of two partitions, and handlers that ignore their contexts. The
// first member handles both messages when a second one joins and gets one of the partitions.
type overlap struct {
	*scene
	release chan struct{}

	mu     sync.Mutex
	inside map[string]int // handlers that have begun, of each id
}

func newOverlap(t *testing.T, f flavor) *overlap {
	t.Helper()
	o := &overlap{scene: f.scene(t, 3, 2).nobodyDies(), release: make(chan struct{}),
		inside: map[string]int{}}
	o.produce(record{id: idOf(0), partition: 0, key: "a"},
		record{id: idOf(1), partition: 1, key: "b"})
	return o
}

// enter counts a handler, and blocks it until release is closed.
func (o *overlap) enter(id string) {
	o.mu.Lock()
	o.inside[id]++
	o.mu.Unlock()
	<-o.release
}

func (o *overlap) deaf(_ context.Context, m *kafkaadapter.Message) error {
	o.enter(m.ID)
	return nil
}

// atOnce returns the largest number of handlers of one message. None ends before release is closed.
func (o *overlap) atOnce() (most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.inside {
		most = max(most, n)
	}
	return most
}

func shortDrain(mc *memberConfig) { mc.Tuning.Drain = 200 * time.Millisecond }

// At level Claimed a message moves to another member while its handler still runs, and the lease
// keeps the new handler from starting. With Allow.TakeOver it does not: two handlers run at the
// same time. That is the exception that the option's documentation names.
func TestTakeOverWhileAHandlerRuns(t *testing.T) {
	for _, c := range []struct {
		name   string
		change []func(*memberConfig)
		most   int
	}{{"waits for the lease", nil, 1}, {"takes over", []func(*memberConfig){takesOver}, 2}} {
		t.Run(c.name, func(t *testing.T) {
			eachFlavor(t, func(t *testing.T, f flavor) {
				o := newOverlap(t, f)
				change := append(c.change, shortDrain)
				a := o.join(o.deaf, change...)
				eventually(t, 10*time.Second, func() (bool, string) {
					return a.running.Load() == 2, "the first member is not at work"
				})
				b := o.join(o.deaf, change...)
				eventually(t, 10*time.Second, func() (bool, string) {
					return longer(o.scene, 3) && (c.most == 1 || o.atOnce() == 2) ||
						o.atOnce() == 2, "the message did not move"
				})
				assert.Equal(t, c.most, o.atOnce(), "handlers of a message that run at once")
				close(o.release)
				o.wantCommittedToEnd(15 * time.Second)
				a.leave(t)
				b.leave(t)
				assert.Equal(t, 1+c.most, o.totalEffects(), "effects")
				o.wantRecorded()
				o.wantNothingLeft()
			})
		})
	}
}

// At level Atomic two handlers of a message may run at the same time: one commits its transaction,
// and the other one finds the mark. When the new handler begins, the old ones are before their
// transactions, or one is inside its transaction and the other waits for the database.
func TestOverlapIsHarmlessInOneTransaction(t *testing.T) {
	for _, where := range []string{"before the transaction", "inside the transaction"} {
		t.Run(where, func(t *testing.T) {
			eachFlavor(t, func(t *testing.T, f flavor) {
				harmlessOverlap(t, f, where == "inside the transaction")
			})
		})
	}
}

func harmlessOverlap(t *testing.T, f flavor, inside bool) {
	o := newOverlap(t, f)
	ledger := o.atomic()
	var mu sync.Mutex
	outcomes := map[driver.Outcome]int{}
	handler := func(db *sql.DB) func(*memberConfig) {
		return func(mc *memberConfig) {
			mc.Unclaimed = true
			mc.Handler = func(ctx context.Context, m *kafkaadapter.Message) error {
				if !inside {
					o.enter(m.ID)
				}
				// The worst that a handler can do: its partition is gone, and it runs on.
				mark, err := ledger.marks.Do(context.WithoutCancel(ctx), db, m.ID,
					func(ctx context.Context, tx *sql.Tx) error {
						if _, err := tx.ExecContext(ctx,
							"INSERT INTO effects (id, key, part, pos) VALUES (?, ?, ?, ?)",
							m.ID, string(m.Key), m.Partition, m.Offset); err != nil {
							return err
						}
						if inside {
							o.enter(m.ID)
						}
						return nil
					})
				if err == nil {
					mu.Lock()
					outcomes[mark.Outcome]++
					mu.Unlock()
				}
				return err
			}
		}
	}
	a := o.join(nil, shortDrain, handler(ledger.write))
	eventually(t, 10*time.Second, func() (bool, string) {
		return a.running.Load() == 2, "the first member is not at work"
	})
	// a connection of its own, as another process would have
	b := o.join(nil, shortDrain, handler(openSQLite(t, ledger.dsn)))
	eventually(t, 10*time.Second, func() (bool, string) {
		return a.running.Load()+b.running.Load() > 2,
			fmt.Sprint("no overlap; the first runs ", a.running.Load())
	})
	assert.Zero(t, o.committed(0)+o.committed(1), "offsets committed before any transaction")
	close(o.release)
	o.wantAll(15*time.Second, a, b) // each effect once
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, 2, outcomes[dedup.Acquired], "outcomes %v", outcomes)
	assert.NotZero(t, outcomes[dedup.Duplicate], "outcomes %v", outcomes)
}

// longLease sets a lease that is longer than any test.
func longLease(mc *memberConfig) { mc.lease, mc.Tuning.Workers = time.Minute, 4 }

// generation returns the generation of the group, as the broker counts it.
func (s *scene) generation() int32 {
	if info := s.cluster.GroupInfo(sceneGroup); info != nil {
		return info.Epoch
	}
	return 0
}

// wantRunSoon waits until the group has a generation after old, and one member with partitions.
// Then it requires that n messages have run within two seconds, times slowness.
func (s *scene) wantRunSoon(old int32, n int) {
	s.t.Helper()
	eventually(s.t, 10*time.Second, func() (bool, string) {
		now := s.generation()
		return now > old, fmt.Sprint("generation ", now)
	})
	s.wantMembers(1)
	assigned := time.Now()
	eventually(s.t, 2*time.Second, func() (bool, string) {
		return s.totalEffects() == n, fmt.Sprintf("%d of %d effects", s.totalEffects(), n)
	})
	s.t.Logf("%d messages ran within %v of the assignment",
		n, time.Since(assigned).Round(time.Millisecond))
}

// A member leaves with a lease of a minute. It has given back the messages that it had not started,
// and those that it has canceled. They run as soon as another member has the partition.
func TestCleanLeaveLeavesNoLease(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f flavor) {
		const n = 40
		s := f.scene(t, 3, 1)
		s.produce(numbered(0, 0, n)...)
		a := s.join(untilCancelled, longLease)
		eventually(t, 10*time.Second, func() (bool, string) {
			return a.running.Load() == 4, "the first member is not at work"
		})
		old := s.generation()
		a.leave(t)
		b := s.join(nil, longLease)
		s.wantRunSoon(old, n)
		s.wantAll(10*time.Second, b)
	})
}

// A member dies with a lease of a minute. A member with Allow.TakeOver runs its messages as soon as
// the group has given the partition to it; any other member waits.
func TestCrashLeavesALease(t *testing.T) {
	const n = 40
	crashed := func(t *testing.T, f flavor, change ...func(*memberConfig)) (s *scene,
		survivor *member, old int32) {
		s = f.scene(t, 3, 1)
		s.produce(numbered(0, 0, n)...)
		a := s.join(untilCancelled, append(change, longLease)...)
		eventually(t, 10*time.Second, func() (bool, string) {
			return a.running.Load() == 4, "the first member is not at work"
		})
		old = s.generation()
		a.crash()
		return s, s.join(nil, append(change, longLease)...), old
	}
	t.Run("taken over", func(t *testing.T) {
		eachFlavor(t, func(t *testing.T, f flavor) {
			s, b, old := crashed(t, f, takesOver)
			s.wantRunSoon(old, n)
			s.wantAll(10*time.Second, b)
		})
	})
	t.Run("not asked for", func(t *testing.T) {
		eachFlavor(t, func(t *testing.T, f flavor) {
			s, b, _ := crashed(t, f)
			eventually(t, 10*time.Second, func() (bool, string) {
				return longer(s, 3), "nobody waits"
			})
			assert.Zero(t, s.totalEffects(), "effects under somebody else's lease")
			b.leave(t)
		})
	})
}
