package txn

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

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
	if err != nil {
		t.Fatal(err)
	}
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
		if err := p.Run(row.ctx, row.group, row.topics); !errors.As(err, &input) ||
			input.Field != row.field {
			t.Errorf("%s: %v", row.field, err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		g := &scriptedGroup{errs: make(chan error),
			joins: []func(context.Context, sarama.ConsumerGroupHandler) error{
				joinFails(io.EOF), joinFails(nil), joinFails(io.EOF),
			}}
		done := make(chan error)
		go func() { done <- p.Run(ctx, g, []string{topic}) }()
		time.Sleep(time.Minute)
		if err := p.Run(t.Context(), g, []string{topic}); !errors.Is(err, ErrRunning) {
			t.Errorf("a second Run: %v", err)
		}
		g.errs <- io.ErrUnexpectedEOF
		cancel()
		if err := <-done; err != nil || g.done != 4 {
			t.Errorf("%v after %d joins", err, g.done)
		}
		if want := []error{io.EOF, io.EOF, io.ErrUnexpectedEOF}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// Run ends with the group, and with a message that cannot be processed, which ends the other
// partitions too.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(config())
		if err != nil {
			t.Fatal(err)
		}
		g := &scriptedGroup{joins: []func(context.Context,
			sarama.ConsumerGroupHandler) error{joinFails(sarama.ErrClosedConsumerGroup)}}
		if err := p.Run(t.Context(), g, []string{topic}); !errors.Is(err,
			sarama.ErrClosedConsumerGroup) {
			t.Errorf("Run returned %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		never := dedup.Permanent(errors.New("never"))
		c := newFakeCluster(t)
		p, err := New(config(func(cfg *Config) { cfg.Handler = failing(never, 2) }))
		if err != nil {
			t.Fatal(err)
		}
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
		if err := p.Run(t.Context(), g, []string{topic}); !errors.As(err, &stop) ||
			stop.Offset != 2 || !errors.Is(err, never) ||
			!strings.Contains(err.Error(), "orders/3@2") {
			t.Errorf("Run returned %v", err)
		}
		if !slices.Equal(c.committedOutputs(), outputsOf(0, 2)) {
			t.Errorf("committed %v", c.outputs)
		}
	})
}
