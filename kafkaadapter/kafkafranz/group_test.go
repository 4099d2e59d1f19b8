package kafkafranz

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Everything is handled once and committed, and a member that leaves gives nothing back late.
func TestOneMember(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 3)
		for p := range int32(3) {
			r.produce(p, int(p)*1000, 500)
		}
		m := r.join(nil, nil)
		r.committed()
		m.leave()
		r.once(1500)
		again := r.join(nil, nil)
		r.produce(0, 5000, 10)
		r.committed()
		again.leave()
		r.once(1510)
	})
}

// Consume is New and Run.
func TestConsume(t *testing.T) {
	r := newRig(t, cooperative, 1)
	r.produce(0, 0, 5)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	cfg := r.config(&link{Store: r.store}, nil)
	brokers := r.cluster.ListenAddrs()
	go func() { done <- Consume(ctx, brokers, group, []string{orders}, r.mode.opts, cfg) }()
	r.committed()
	stop()
	require.NoError(t, <-done)
	r.once(5)
	wantInput(t, Consume(t.Context(), brokers, "", []string{orders}, nil, cfg), "group")
}

// Members come, go and crash at work. No effect happens twice but those that a crash cut
// off, and no commit is ahead of a record.
func TestRebalances(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 4)
		r.mortal()
		slow := func(ctx context.Context, _ *kafkaadapter.Message) error {
			return kafkadriver.Sleep(ctx, 5*time.Millisecond)
		}
		sent := 0
		more := func() {
			for p := range int32(4) {
				r.produce(p, sent, 300)
				sent += 300
			}
		}
		more()
		first, second := r.join(slow, nil), r.join(slow, nil)
		r.members(2)
		more()
		third := r.join(slow, nil)
		r.members(3)
		more()
		second.leave()
		r.members(2)
		r.committed()
		r.once(sent)

		more()
		r.eventually(func() (bool, string) { return r.totalEffects() > sent-1000, "no progress" })
		first.crash()
		r.committed()
		third.leave()
		_ = first.wait()
		const atWork = 4 * 512 // ClaimAhead a partition: what a crash can cut off before its record
		assert.LessOrEqual(t, r.totalEffects(), sent+atWork, "effects")
		assert.Len(t, r.effects, sent, "messages with an effect")
		assert.NotZero(t, r.noted("revoked"), "partitions that were revoked")
		t.Logf("%d messages, %d effects, %d commits, %d duplicates skipped", sent, r.total,
			r.commits, r.noted("skipped"))
	})
}
