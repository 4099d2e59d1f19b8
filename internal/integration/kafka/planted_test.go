package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

// The oracles find each bug that is planted. If they missed one, they would also miss it in the
// adapter.
func TestPlantedBugsAreSeen(t *testing.T) {
	for _, c := range []struct {
		bug  string
		seen func(t *testing.T, f flavor) []string
	}{
		{"a message is marked when it arrives", seenEarlyMarks},
		{"what is in flight elsewhere counts as done", seenBusyIsDone},
		{"a commit is not repeated", seenCommitOnce},
		{"a failure counts as done", seenFailureIsDone},
		{"claims are not exclusive", seenSharedClaims},
		{"a key's messages are handled in any order", seenDisorder},
	} {
		t.Run(c.bug, func(t *testing.T) {
			eachFlavor(t, func(t *testing.T, f flavor) {
				found := c.seen(t, f)
				require.NotEmpty(t, found, "the oracles saw nothing wrong")
				t.Logf("%d findings, first: %s", len(found), found[0])
			})
		})
	}
}

// earlyCommits returns the violations that the oracle at the broker has seen so far. The scene is
// about them, so they do not fail it.
func (s *scene) earlyCommits() []string {
	s.early = true
	s.oracle.mu.Lock()
	defer s.oracle.mu.Unlock()
	return s.oracle.violations
}

func seenEarlyMarks(t *testing.T, f flavor) []string {
	s := f.scene(t, 3, 2).nobodyDies()
	s.produce(numbered(0, 0, 200)...)
	s.produce(numbered(1, 200, 200)...)
	m := s.join(func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Offset == 0 {
			return nil // so that there is something to commit
		}
		select { // the others have no effect before a commit
		case <-s.oracle.committing:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, func(mc *memberConfig) { mc.bug = marksOnReceipt })
	s.wantCommittedToEnd(30 * time.Second)
	m.leave(t)
	return s.earlyCommits()
}

// lyingStore answers claims wrongly.
type lyingStore struct {
	dedup.Store
	lie func(*driver.Answer, driver.ClaimRequest)
}

func (l lyingStore) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := l.Store.Claim(ctx, reqs)
	for i := range answers {
		l.lie(&answers[i], reqs[i])
	}
	return answers
}

// lying puts a lie between the member and its store.
func lying(lie func(*driver.Answer, driver.ClaimRequest)) func(*memberConfig) {
	return func(mc *memberConfig) { mc.link.Store = lyingStore{mc.link.Store, lie} }
}

func seenBusyIsDone(t *testing.T, f flavor) []string {
	s := f.scene(t, 3, 2).nobodyDies()
	block := make(chan struct{})
	busy := lying(func(ans *driver.Answer, _ driver.ClaimRequest) {
		if ans.Outcome == dedup.InFlight {
			ans.Outcome, ans.Record.State = dedup.Duplicate, driver.StateSucceeded
		}
	})
	wait := func(context.Context, *kafkaadapter.Message) error { <-block; return nil }
	a, b := s.join(wait, busy), s.join(wait, busy)
	s.wantMembers(2)
	s.produce(record{id: "same", partition: 0, key: "k"},
		record{id: "same", partition: 1, key: "k"})
	eventually(t, 10*time.Second, func() (bool, string) {
		return s.committed(0)+s.committed(1) == 1, "nobody commits"
	})
	close(block)
	a.leave(t)
	b.leave(t)
	return s.earlyCommits()
}

func seenCommitOnce(t *testing.T, f flavor) []string {
	const n = 100
	s := f.scene(t, 3, 1).nobodyDies()
	last := commitFault(kerr.NotCoordinator, 1)
	last.When = func(req kmsg.Request) bool {
		return req.(*kmsg.OffsetCommitRequest).Topics[0].Partitions[0].Offset == n
	}
	refused := s.cluster.Fault(last)
	m := s.join(nil, func(mc *memberConfig) { mc.bug = commitsOnce })
	s.produce(numbered(0, 0, n)...)
	eventually(t, 10*time.Second, func() (bool, string) {
		return s.totalEffects() == n && refused.Hits() == 1, "the last commit was not refused"
	})
	// A member that repeats its commits does so every 50 ms.
	if at := settle(t, func() int64 { return s.committed(0) }); at < n {
		defer m.crash()
		return []string{fmt.Sprintf("committed to %d of %d", at, n)}
	}
	m.leave(t)
	return nil
}

func seenFailureIsDone(t *testing.T, f flavor) []string {
	s := f.scene(t, 3, 1)
	s.produce(numbered(0, 0, 20)...)
	m := s.join(func(_ context.Context, m *kafkaadapter.Message) error {
		if m.Offset%5 == 0 && m.Attempt == 1 {
			return errors.New("not this time")
		}
		return nil
	}, func(mc *memberConfig) {
		careful := mc.Handler
		mc.Handler = func(ctx context.Context, m *kafkaadapter.Message) error {
			_ = careful(ctx, m)
			return nil
		}
	})
	s.wantCommittedToEnd(10 * time.Second)
	m.leave(t)
	return s.notOnce()
}

func seenSharedClaims(t *testing.T, f flavor) []string {
	s := f.scene(t, 3, 2).nobodyDies()
	shared := lying(func(ans *driver.Answer, _ driver.ClaimRequest) {
		if ans.Outcome == dedup.InFlight {
			ans.Outcome = dedup.Acquired
		}
	})
	var inside counter
	wait := func(ctx context.Context, _ *kafkaadapter.Message) error {
		return inside.waitFor(ctx, 2)
	}
	a, b := s.join(wait, shared), s.join(wait, shared)
	s.wantMembers(2)
	s.produce(record{id: "same", partition: 0, key: "k"},
		record{id: "same", partition: 1, key: "k"})
	eventually(t, 10*time.Second, func() (bool, string) {
		return s.effectsOf("same") == 2, "one effect"
	})
	a.leave(t)
	b.leave(t)
	return s.notOnce()
}

func seenDisorder(t *testing.T, f flavor) []string {
	const n = 20
	s := f.scene(t, 3, 1).nobodyDies()
	s.produce(keyed(numbered(0, 0, n), "k")...)
	m := s.join(func(ctx context.Context, m *kafkaadapter.Message) error {
		return backoff.Sleep(ctx, time.Duration(n-m.Offset)*10*time.Millisecond)
	}, func(mc *memberConfig) { mc.Order, mc.Tuning.Workers = kafkaadapter.Unordered, n })
	s.wantCommittedToEnd(10 * time.Second)
	m.leave(t)
	return s.disorder()
}
