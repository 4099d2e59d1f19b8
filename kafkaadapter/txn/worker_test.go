package txn

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/stretchr/testify/require"
)

// Whichever call fails, the output of each message is committed once and in order. After the fault
// the worker makes only calls that the state of the producer allows.
func TestFaultAndWhatFollows(t *testing.T) {
	const (
		begin = "member init committed "
		whole = "begin send offsets commit"
	)
	refusal := func(err error) []fault { return []fault{{err: err, status: abortable}} }
	for _, row := range []struct {
		name   string
		script map[string][]fault
		want   string // calls after the dial
	}{
		{"nothing", nil, begin + whole},
		{"produce, abortable", map[string][]fault{"send": refusal(sarama.ErrNotEnoughReplicas)},
			begin + "begin send abort " + whole},
		{"produce, abortable twice",
			map[string][]fault{"send": {{err: io.EOF, status: abortable},
				{err: io.EOF, status: abortable}}},
			begin + "begin send abort begin send abort " + whole},
		{"produce, fenced", map[string][]fault{
			"send": {{err: sarama.ErrProducerFenced, status: fatal}}},
			begin + "begin send " + begin + whole},
		{"abort fails", map[string][]fault{"send": refusal(io.EOF), "abort": {{err: io.EOF}}},
			begin + "begin send abort " + begin + whole},
		{"begin fails", map[string][]fault{"begin": {{err: sarama.ErrTransitionNotAllowed}}},
			begin + "begin " + begin + whole},
		{"offsets refused locally",
			map[string][]fault{"offsets": {{err: sarama.ErrTransactionNotReady,
				status: abortable}}}, begin + "begin send offsets abort " + whole},
		{"commit, illegal generation",
			map[string][]fault{"commit": refusal(sarama.ErrIllegalGeneration)},
			begin + whole + " abort " + begin + whole},
		{"commit, unknown member", map[string][]fault{"commit": refusal(sarama.ErrUnknownMemberId)},
			begin + whole + " abort " + begin + whole},
		{"commit, no right to the group",
			map[string][]fault{"commit": refusal(sarama.ErrGroupAuthorizationFailed)},
			begin + whole + " abort " + begin + whole},
		{"commit, fatal", map[string][]fault{"commit": {{err: sarama.ErrProducerFenced,
			status: fatal}}}, begin + whole + " " + begin + whole},
		{"commit, abortable but perhaps sent",
			map[string][]fault{"commit": {{err: sarama.ErrUnknownProducerID, status: abortable}}},
			begin + whole + " " + begin + whole},
		{"commit, lost before it was made",
			map[string][]fault{"commit": {{err: io.EOF,
				status: sarama.ProducerTxnFlagEndTransaction}}},
			begin + whole + " " + begin + whole},
		{"commit, made but its answer lost",
			map[string][]fault{"commit": {{err: io.EOF,
				status: sarama.ProducerTxnFlagEndTransaction, landed: true}}},
			begin + whole + " " + begin[:len(begin)-1]},
		{"heartbeat fails", map[string][]fault{"member": {{err: io.EOF}}},
			"member " + begin + whole},
		{"no producer", map[string][]fault{"init": {{err: sarama.ErrConcurrentTransactions}}},
			"member init " + begin + whole},
		{"unstable offset", map[string][]fault{"committed": {{err: sarama.ErrUnstableOffsetCommit},
			{err: sarama.ErrUnstableOffsetCommit}}}, begin + "committed committed " + whole},
		{"no offset", map[string][]fault{"committed": {{err: sarama.ErrNotCoordinatorForConsumer}}},
			begin + begin + whole},
		{"commit lost and then everything else", map[string][]fault{
			"commit": {{err: io.EOF, status: sarama.ProducerTxnFlagEndTransaction, landed: true}},
			"member": {{}, {err: io.EOF}}, "init": {{}, {err: io.EOF}},
			"committed": {{}, {err: io.EOF}},
		}, begin + whole + " member member init " + begin + begin[:len(begin)-1]},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster(t)
				for call, faults := range row.script {
					c.script[call] = faults
				}
				r := start(t, c)
				r.feed(10, 14)
				time.Sleep(time.Minute)
				assert.Equal(t, row.want, strings.TrimPrefix(c.log(), "dial "), "calls")
				r.feed(14, 15)
				time.Sleep(time.Minute)
				assert.NoError(t, r.leave(), "the claim")
				assert.Equal(t, outputsOf(10, 15), c.committedOutputs())
				assert.Equal(t, int64(15), c.offset, "what is committed")
				c.wantClosed()
			})
		})
	}
}

// Any faults in any order: nothing is lost, doubled or out of order.
func TestAnyFaults(t *testing.T) {
	const n = 60
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			c := newFakeCluster(t)
			c.weather = func(call string) fault {
				if rnd.IntN(100) == 0 {
					c.epoch++ // somebody takes the transactional id
				}
				if rnd.IntN(4) > 0 {
					return fault{}
				}
				return anyFault(rnd, call)
			}
			r := start(t, c)
			r.feed(0, n)
			time.Sleep(time.Hour)
			assert.NoError(t, r.leave(), "seed %d", seed)
			assert.Equal(t, outputsOf(0, n), c.outputs, "seed %d", seed)
			assert.Equal(t, int64(n), c.offset, "what is committed with seed %d", seed)
			c.wantClosed()
		})
		if t.Failed() {
			return
		}
	}
}

// anyFault returns a fault that sarama may have in a call, with the state after it.
func anyFault(rnd *rand.Rand, call string) fault {
	one := func(faults ...fault) fault { return faults[rnd.IntN(len(faults))] }
	lost := fault{err: io.EOF, status: sarama.ProducerTxnFlagEndTransaction}
	switch call {
	case "begin":
		return fault{err: sarama.ErrTransitionNotAllowed}
	case "send":
		return one(fault{err: io.EOF, status: abortable},
			fault{err: io.EOF, status: abortable, landed: true},
			fault{err: sarama.ErrProducerFenced, status: fatal})
	case "offsets":
		return fault{err: sarama.ErrTransactionNotReady, status: abortable}
	case "commit":
		made := lost
		made.landed = true
		return one(lost, made, fault{err: sarama.ErrIllegalGeneration, status: abortable},
			fault{err: sarama.ErrUnknownProducerID, status: abortable},
			fault{err: sarama.ErrInvalidProducerEpoch, status: fatal},
			fault{err: sarama.ErrInvalidProducerEpoch, status: fatal, landed: true})
	case "abort":
		made := lost
		made.landed = true
		return one(lost, made, fault{err: sarama.ErrInvalidTxnState, status: fatal})
	case "committed":
		return one(fault{err: io.EOF}, fault{err: sarama.ErrUnstableOffsetCommit})
	default: // dial, member, init
		return fault{err: io.EOF}
	}
}

// A consumer that the group has removed fences no producer and commits nothing.
func TestStaleMemberEndsItsClaim(t *testing.T) {
	for _, stale := range []error{sarama.ErrIllegalGeneration, sarama.ErrUnknownMemberId,
		sarama.ErrFencedInstancedId} {
		synctest.Test(t, func(t *testing.T) {
			c := newFakeCluster(t)
			c.script["commit"] = []fault{{err: stale, status: abortable}}
			c.script["member"] = []fault{{}, {err: stale}}
			r := start(t, c)
			r.feed(0, 4)
			err := <-r.done
			assert.ErrorIs(t, err, ErrStale)
			assert.ErrorIs(t, err, stale)
			assert.Equal(t, "dial member init committed begin send offsets commit abort member",
				c.log())
			assert.Empty(t, c.outputs)
			c.wantClosed()
		})
	}
}

// sarama asks for the first offset before the claim begins. An earlier session of the
// same generation may commit after that, before it is fenced: that is not processed again.
func TestLateCommitBeforeTheFirstProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		c.offset = 10
		c.zombie = func() { c.offset, c.outputs = 12, outputsOf(10, 12) }
		r := start(t, c)
		r.feed(10, 14)
		time.Sleep(time.Minute)
		assert.NoError(t, r.leave())
		assert.Equal(t, outputsOf(10, 14), c.outputs)
	})
}

// failing is a handler that refuses the messages of some offsets.
func failing(err error, offsets ...int64) Handler {
	return PerMessage(func(ctx context.Context,
		m *sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
		if slices.Contains(offsets, m.Offset) {
			return nil, err
		}
		return upper(ctx, m)
	})
}

func deadLetter(m *sarama.ConsumerMessage, reason error) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: "dead",
		Value: sarama.StringEncoder("dead " + string(m.Value))}
}

// A message that cannot be processed is alone in its transaction, which carries its dead
// letter; its neighbors are processed, in order.
func TestDeadLetterTakesTheMessagesPlace(t *testing.T) {
	never := dedup.Permanent(errors.New("no such account"))
	tooLarge := sarama.ProducerErrors{{Msg: &sarama.ProducerMessage{Topic: "out"},
		Err: sarama.ErrMessageSizeTooLarge}}
	for _, row := range []struct {
		name   string
		change func(*Config)
		script map[string][]fault
	}{
		{name: "permanent", change: func(c *Config) { c.Handler = failing(never, 12) }},
		{name: "attempts are used up", change: func(c *Config) {
			c.Handler, c.Attempts = failing(errors.New("not now"), 12), 3
		}},
		{name: "a panic counts", change: func(c *Config) {
			c.Attempts = 2
			c.Handler = PerMessage(func(ctx context.Context,
				m *sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
				if m.Offset == 12 {
					panic("twelve")
				}
				return upper(ctx, m)
			})
		}},
		{name: "too slow", change: func(c *Config) {
			c.Attempts, c.Timeout = 2, time.Second
			c.Handler = PerMessage(func(ctx context.Context,
				m *sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
				if m.Offset == 12 {
					<-ctx.Done()
				}
				return upper(ctx, m) // which would be half an output
			})
		}},
		{name: "a nil output", change: func(c *Config) {
			c.Attempts = 1
			c.Handler = PerMessage(func(ctx context.Context,
				m *sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
				if m.Offset == 12 {
					return []*sarama.ProducerMessage{nil}, nil
				}
				return upper(ctx, m)
			})
		}},
		// Sent are: 10 to 13, the first half of that, 12 to 15, 12 and 13, 12.
		{name: "output too large", change: func(*Config) {}, script: map[string][]fault{"send": {
			{err: tooLarge, status: abortable}, {}, {err: tooLarge, status: abortable},
			{err: tooLarge, status: abortable}, {err: tooLarge, status: abortable},
		}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster(t)
				for call, faults := range row.script {
					c.script[call] = faults
				}
				var dead []int64
				r := start(t, c, row.change, func(cfg *Config) {
					cfg.DeadLetter = deadLetter
					cfg.Observer.DeadLettered = func(m *sarama.ConsumerMessage, _ error) {
						dead = append(dead, m.Offset)
					}
				})
				r.feed(10, 18)
				time.Sleep(time.Hour)
				assert.NoError(t, r.leave())
				want := append(append(outputsOf(10, 12), "dead v12"), outputsOf(13, 18)...)
				assert.Equal(t, want, c.outputs)
				assert.Equal(t, int64(18), c.offset, "what is committed")
				assert.Equal(t, []int64{12}, dead)
				c.wantClosed()
			})
		})
	}
}

// If a message cannot be processed and its dead letter cannot be written, Run stops. The message is
// never skipped, and the messages before it are committed.
func TestUnprocessableStops(t *testing.T) {
	never := dedup.Permanent(errors.New("no such account"))
	for _, row := range []struct {
		name   string
		letter func(*sarama.ConsumerMessage, error) *sarama.ProducerMessage
		script map[string][]fault
	}{
		{name: "no dead letters"},
		{name: "no letter", letter: func(*sarama.ConsumerMessage, error) *sarama.ProducerMessage {
			return nil
		}},
		{name: "panic", letter: func(*sarama.ConsumerMessage, error) *sarama.ProducerMessage {
			panic("no")
		}},
		{name: "letter too large", letter: deadLetter, script: map[string][]fault{"send": {
			{}, {err: sarama.ProducerErrors{{Msg: &sarama.ProducerMessage{Topic: "dead"},
				Err: sarama.ErrMessageSizeTooLarge}}, status: abortable},
		}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster(t)
				for call, faults := range row.script {
					c.script[call] = faults
				}
				r := start(t, c, func(cfg *Config) {
					cfg.Handler, cfg.DeadLetter = failing(never, 12), row.letter
				})
				r.feed(10, 14)
				var stop *UnprocessableError
				err := <-r.done
				require.ErrorAs(t, err, &stop)
				assert.True(t, stop.Topic == topic && stop.Partition == 3 && stop.Offset == 12, err)
				assert.ErrorIs(t, err, never)
				assert.Equal(t, outputsOf(10, 12), c.outputs)
				assert.Equal(t, int64(12), c.offset, "what is committed")
				assert.Error(t, r.processor.member.Fatal(), "Run would not end")
				c.wantClosed()
			})
		})
	}
}

// While the cluster is down, attempts do not count, so no message becomes a dead letter.
func TestOutageCountsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		for range 10 {
			c.script["send"] = append(c.script["send"],
				fault{err: sarama.ProducerErrors{{Err: sarama.ErrOutOfBrokers}}, status: abortable})
		}
		r := start(t, c, func(cfg *Config) { cfg.Attempts, cfg.DeadLetter = 2, deadLetter })
		r.feed(0, 4)
		time.Sleep(time.Hour)
		assert.NoError(t, r.leave())
		assert.Equal(t, outputsOf(0, 4), c.outputs)
	})
}
