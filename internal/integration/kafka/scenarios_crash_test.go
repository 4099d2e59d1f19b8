package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// A member dies between the claim and the effect: its messages are delivered again, wait
// for the lease, and run once, as the second attempt.
func TestCrashBetweenClaimAndEffect(t *testing.T) { eachFlavor(t, crashBetweenClaimAndEffect) }

func crashBetweenClaimAndEffect(t *testing.T, f flavor) {
	const n = 20
	s := f.scene(t, 3, 1)
	s.produce(numbered(0, 0, n)...)
	long := func(mc *memberConfig) { mc.lease = 4 * time.Second } // longer than the group's session
	first := s.join(untilCancelled, long)
	eventually(t, 10*time.Second, func() (bool, string) {
		return first.running.Load() == n, fmt.Sprint(first.running.Load(), " handlers run")
	})
	first.crash()

	var attempts atomic.Int64
	second := s.join(func(_ context.Context, m *kafkaadapter.Message) error {
		if m.Attempt == 2 {
			attempts.Add(1)
		}
		return nil
	}, long)
	s.wantAll(15*time.Second, second)
	assert.Equal(t, int64(n), attempts.Load(), "messages that were run as a second attempt")
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.NotEmpty(t, s.waited, "nothing waited for the dead member's leases")
}

// untilCancelled is a handler that never has its effect.
func untilCancelled(ctx context.Context, _ *kafkaadapter.Message) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// killedAfterEffects returns a handler for the first of two members, and a function that kills this
// member. The handler returns for messages below n. For the others it waits after the effect. The
// function kills the member when all these effects have happened, before any of them is on record.
func killedAfterEffects(s *scene, n, all int) (kafkaadapter.Handler, func(*member)) {
	var landed sync.WaitGroup
	landed.Add(all - n)
	killed := make(chan struct{})
	handle := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID >= idOf(n) {
			s.affect(m)
			landed.Done()
			<-killed
			return errDead // nobody gets it
		}
		return nil
	}
	return handle, func(m *member) {
		landed.Wait()
		m.crash()
		close(killed)
	}
}

// A member dies after its effects and before their records. At level Claimed exactly these
// run again: at least once, as documented.
func TestCrashBetweenEffectAndRecord(t *testing.T) { eachFlavor(t, crashBetweenEffectAndRecord) }

func crashBetweenEffectAndRecord(t *testing.T, f flavor) {
	const n, all = 50, 60
	s := f.scene(t, 3, 1)
	s.produce(numbered(0, 0, all)...)
	handle, kill := killedAfterEffects(s, n, all)
	first := s.join(handle, func(mc *memberConfig) { mc.Tuning.Workers = all })
	eventually(t, 10*time.Second, func() (bool, string) {
		missing := s.records(s.ids()[:n])
		return len(missing) == 0, fmt.Sprint(missing)
	})
	kill(first)

	second := s.join(nil)
	s.wantCommittedToEnd(15 * time.Second)
	second.leave(t)
	for i := range all {
		want := 1
		if i >= n {
			want = 2 // by the member that died, and by the other one
		}
		assert.Equal(t, want, s.effectsOf(idOf(i)), "effects of %s", idOf(i))
		ends := first.link.endsOf(idOf(i))
		assert.Equal(t, want == 1, len(ends) > 0, "the member that died recorded %s %d times",
			idOf(i), len(ends))
	}
	s.wantRecorded()
	s.wantNothingLeft()
}

// The same crash after MarkIrreversible: Resolve asks the downstream, and nothing runs twice.
func TestCrashAfterMarkIrreversibleIsAsked(t *testing.T) { eachFlavor(t, crashAfterMarkIsAsked) }

func crashAfterMarkIsAsked(t *testing.T, f flavor) {
	const n, all = 20, 30
	s := f.scene(t, 3, 1)
	s.produce(numbered(0, 0, all)...)
	handle, kill := killedAfterEffects(s, n, all)
	dangerous := func(h kafkaadapter.Handler) kafkaadapter.Handler {
		return func(ctx context.Context, m *kafkaadapter.Message) error {
			if err := dedup.MarkIrreversible(ctx); err != nil {
				return err
			}
			return h(ctx, m)
		}
	}
	var asked atomic.Int64
	resolve := func(mc *memberConfig) {
		mc.Tuning.Workers = all
		mc.resolve = func(_ context.Context, key string, _ dedup.Record) (dedup.Resolution, error) {
			asked.Add(1)
			if s.effectsOf(key) > 0 {
				return dedup.Happened(nil), nil
			}
			return dedup.DidNotHappen(), nil
		}
	}
	first := s.join(dangerous(handle), resolve)
	eventually(t, 10*time.Second, func() (bool, string) {
		missing := s.records(s.ids()[:n])
		return len(missing) == 0, fmt.Sprint(missing)
	})
	kill(first)
	ends := func(context.Context, *kafkaadapter.Message) error { return nil }
	second := s.join(dangerous(ends), resolve)
	s.wantAll(15*time.Second, second)
	assert.Equal(t, int64(all-n), asked.Load(), "questions to the downstream")
}

// At level Atomic the process dies inside the transaction, and right after its commit:
// one effect in each case.
func TestCrashAroundTheTransaction(t *testing.T) { eachFlavor(t, crashAroundTheTransaction) }

func crashAroundTheTransaction(t *testing.T, f flavor) {
	for _, c := range []struct {
		name  string
		after bool // the commit
	}{{"inside", false}, {"after the commit", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const n = 60
			s := f.scene(t, 3, 1)
			ledger := s.atomic()
			// the crash comes before any commit
			refused := s.cluster.Fault(commitFault(kerr.NotCoordinator, -1))
			s.produce(numbered(0, 0, n)...)
			var first *member
			var once sync.Once
			reached := make(chan string, 1) // the id at which the process dies
			ledger.inside = func(link *mortal, m *kafkaadapter.Message) {
				if link != first.link || s.totalEffects() < n/4 {
					return
				}
				once.Do(func() {
					if !c.after {
						link.kill() // it cannot commit any more
					}
					reached <- m.ID
				})
			}
			joined := make(chan struct{})
			first = s.join(func(context.Context, *kafkaadapter.Message) error {
				<-joined
				return nil
			})
			close(joined)
			id := waitFor(t, reached, "the message to crash at did not come")
			if c.after {
				eventually(t, 10*time.Second, func() (bool, string) {
					return s.effectsOf(id) == 1, "not committed"
				})
			}
			first.crash()
			s.gone()
			refused.Remove()
			second := s.join(nil)
			s.wantAll(20*time.Second, second)
			s.mu.Lock()
			defer s.mu.Unlock()
			assert.NotZero(t, s.skipped["marked"],
				"nothing was delivered again: the crash proved nothing")
		})
	}
}

// A process is stopped for longer than its lease, inside a handler, and wakes up after
// another one has done its work.
func TestZombieWakes(t *testing.T) { eachFlavor(t, zombieWakes) }

func zombieWakes(t *testing.T, f flavor) {
	for _, c := range []struct {
		name    string
		atomic  bool
		deaf    bool // to its context
		effects int
	}{
		{"a handler that listens to its context", false, false, 1},
		{"a deaf handler has its effect again", false, true, 2},
		{"a deaf handler in a transaction", true, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := f.scene(t, 3, 1)
			if c.atomic {
				s.atomic()
			}
			s.produce(numbered(0, 0, 1)...)
			wake, woken := make(chan struct{}), make(chan error, 1)
			zombie := s.join(func(ctx context.Context, _ *kafkaadapter.Message) error {
				<-wake
				if woken <- context.Cause(ctx); !c.deaf {
					return context.Cause(ctx)
				}
				return nil
			})
			eventually(t, 10*time.Second, func() (bool, string) {
				return zombie.running.Load() == 1, "nothing runs"
			})
			thaw := zombie.freeze()
			heir := s.join(nil)
			s.wantCommittedToEnd(15 * time.Second) // after the session, and the lease
			before := s.committed(0)
			thaw()
			close(wake)
			// franz-go notices by itself that its session is over, and sooner.
			cause := waitFor(t, woken, "the zombie does not wake")
			lost := errors.Is(cause, dedup.ErrLeaseLost) || errors.Is(cause, kafkaadapter.ErrFenced)
			assert.True(t, c.atomic || lost, "the zombie's context ended with %v", cause)
			zombie.abandon()
			wantNoHandler(t, zombie)
			heir.leave(t)
			if s.ledger != nil {
				s.ledger.load(s)
			}
			assert.Equal(t, c.effects, s.effectsOf(idOf(0)), "effects")
			for _, end := range zombie.link.endsOf(idOf(0)) {
				assert.True(t, !end.Held && !end.Written, "the zombie's completion was taken: %+v",
					end)
			}
			assert.Equal(t, before, s.committed(0), "the zombie has committed")
			s.wantRecorded()
			s.wantNothingLeft()
		})
	}
}

func wantNoHandler(t *testing.T, m *member) {
	t.Helper()
	eventually(t, 10*time.Second, func() (bool, string) {
		return m.running.Load() == 0, fmt.Sprint(m.running.Load(), " handlers run")
	})
}
