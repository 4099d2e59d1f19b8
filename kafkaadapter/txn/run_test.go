package txn

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// scriptedGroup answers joins from a script, and then waits for the end.
type scriptedGroup struct {
	sarama.ConsumerGroup
	errs  chan error
	joins []func(ctx context.Context, h sarama.ConsumerGroupHandler) error
	done  int
}

func (g *scriptedGroup) Errors() <-chan error { return g.errs }

func (g *scriptedGroup) Consume(ctx context.Context, _ []string,
	h sarama.ConsumerGroupHandler) error {
	g.done++
	if g.done <= len(g.joins) {
		return g.joins[g.done-1](ctx, h)
	}
	<-ctx.Done()
	return nil
}

func joinFails(err error) func(context.Context, sarama.ConsumerGroupHandler) error {
	return func(context.Context, sarama.ConsumerGroupHandler) error { return err }
}

func TestRunRefusesBadInput(t *testing.T) {
	p, err := New(config())
	require.NoError(t, err)
	group := &scriptedGroup{}
	for _, row := range []struct {
		field  string
		ctx    context.Context
		group  sarama.ConsumerGroup
		topics []string
	}{
		{"Context", nil, group, []string{topic}},
		{"Group", t.Context(), nil, []string{topic}},
		{"Topics", t.Context(), group, nil},
		{"Topics", t.Context(), group, []string{topic, ""}},
	} {
		var input *dedup.InputError
		require.ErrorAs(t, p.Run(row.ctx, row.group, row.topics), &input, row.field)
		assert.Equal(t, row.field, input.Field)
	}
}

// Run joins again after errors and rebalances, and reports every error.
func TestRunJoinsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []error
		p, err := New(config(func(c *Config) {
			c.Observer.GroupError = func(err error) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, err)
			}
		}))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		g := &scriptedGroup{errs: make(chan error),
			joins: []func(context.Context, sarama.ConsumerGroupHandler) error{
				joinFails(io.EOF), joinFails(nil), joinFails(io.EOF),
			}}
		done := make(chan error)
		go func() { done <- p.Run(ctx, g, []string{topic}) }()
		time.Sleep(time.Minute)
		assert.ErrorIs(t, p.Run(t.Context(), g, []string{topic}), ErrRunning, "a second Run")
		g.errs <- io.ErrUnexpectedEOF
		cancel()
		assert.NoError(t, <-done)
		assert.Equal(t, 4, g.done, "joins")
		assert.Equal(t, []error{io.EOF, io.EOF, io.ErrUnexpectedEOF}, told)
	})
}

// Run ends with the group, and with a message that cannot be processed, which ends the other
// partitions too.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(config())
		require.NoError(t, err)
		g := &scriptedGroup{joins: []func(context.Context,
			sarama.ConsumerGroupHandler) error{joinFails(sarama.ErrClosedConsumerGroup)}}
		assert.ErrorIs(t, p.Run(t.Context(), g, []string{topic}), sarama.ErrClosedConsumerGroup)
	})
	synctest.Test(t, func(t *testing.T) {
		never := dedup.Permanent(errors.New("never"))
		c := newFakeCluster(t)
		p, err := New(config(func(cfg *Config) { cfg.Handler = failing(never, 2) }))
		require.NoError(t, err)
		p.dial = func(string) (broker, error) { return c.dial() }
		g := &scriptedGroup{joins: []func(context.Context, sarama.ConsumerGroupHandler) error{
			func(ctx context.Context, h sarama.ConsumerGroupHandler) error {
				claim := &fakeClaim{messages: make(chan *sarama.ConsumerMessage, 4)}
				for o := range int64(4) {
					claim.messages <- message(o)
				}
				go func() { _ = h.ConsumeClaim(&fakeSession{ctx: ctx}, claim) }()
				<-ctx.Done() // as other partitions would
				return nil
			},
		}}
		var stop *UnprocessableError
		err = p.Run(t.Context(), g, []string{topic})
		require.ErrorAs(t, err, &stop)
		assert.Equal(t, int64(2), stop.Offset)
		assert.ErrorIs(t, err, never)
		assert.ErrorContains(t, err, "orders/3@2")
		assert.Equal(t, outputsOf(0, 2), c.committedOutputs())
	})
}
