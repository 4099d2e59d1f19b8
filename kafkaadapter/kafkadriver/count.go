package kafkadriver

import (
	"context"
	"fmt"
	"time"
)

// Counts asks the brokers how many partitions topics have. Callers that ask at the same time share
// an answer. All methods are safe for concurrent use.
type Counts struct {
	ask    func(ctx context.Context, topic string) (int32, error)
	asking chan struct{} // holds one while somebody asks
	known  map[string]counted
}

// counted is an answer, with the time of its question.
type counted struct {
	n     int32
	asked time.Time
}

// NewCounts returns Counts that ask with this function. The function may go on after its context
// has ended: nobody waits for it then.
func NewCounts(ask func(ctx context.Context, topic string) (int32, error)) *Counts {
	return &Counts{ask: ask, asking: make(chan struct{}, 1), known: make(map[string]counted)}
}

// Of returns the number of partitions of a topic. It shares only an answer that was asked for at
// the time since or later.
func (c *Counts) Of(ctx context.Context, topic string, since time.Time) (int32, error) {
	select {
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if k, ok := c.known[topic]; ok && !k.asked.Before(since) {
		<-c.asking
		return k.n, nil
	}
	type answer struct {
		n   int32
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		defer func() { <-c.asking }()
		asked := time.Now()
		n, err := c.ask(ctx, topic)
		if err == nil && n < 1 {
			err = fmt.Errorf("topic %q has %d partitions", topic, n)
		}
		if err == nil {
			c.known[topic] = counted{n, asked}
		}
		answered <- answer{n, err}
	}()
	select {
	case a := <-answered:
		return a.n, a.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
