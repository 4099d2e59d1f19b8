package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/kafkaadapter"
)

// commitEvery is the adapter's default, so that all sides commit as often.
const commitEvery = 250 * time.Millisecond

// clientConfig is the client of every side.
func clientConfig() *sarama.Config { return kafkaadapter.SafeConfig(sarama.NewConfig()) }

// bare is the least that a consumer group can do: take each message and mark it.
func bare(ctx context.Context, j job) (*member, error) {
	return startLoop(ctx, j, func(context.Context, *sarama.ConsumerMessage) error { return nil }, func() error { return nil })
}

// naive is what people write by hand: SET NX, effect, SET, mark, one message after the
// other in each partition. A message whose first attempt died is skipped.
func naive(ctx context.Context, j job) (*member, error) {
	client := server.NewClient(j.redis, 0, 0)
	handle := func(ctx context.Context, m *sarama.ConsumerMessage) error {
		key := j.group + string(m.Headers[0].Value)
		err := client.SetArgs(ctx, key, "claimed", redis.SetArgs{Mode: "NX", TTL: peer.Lease}).Err()
		switch {
		case errors.Is(err, redis.Nil):
			return nil // a duplicate
		case err != nil:
			return err
		}
		return client.Set(ctx, key, "done", peer.Window).Err() // after the effect, which is none here
	}
	return startLoop(ctx, j, handle, client.Close)
}

// loop is a sarama.ConsumerGroupHandler of the usual form.
type loop struct {
	handle func(context.Context, *sarama.ConsumerMessage) error
	done   *progress
	commit sync.WaitGroup
}

func startLoop(ctx context.Context, j job, handle func(context.Context, *sarama.ConsumerMessage) error, shut func() error) (*member, error) {
	group, err := sarama.NewConsumerGroup(j.brokers, j.group, clientConfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("consumer: %w", err), shut())
	}
	l := &loop{handle: handle, done: j.done}
	run := func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{j.log.Topic}, l); err != nil {
				return err
			}
		}
		return nil
	}
	go func() {
		for range group.Errors() { // until the group is closed: what fails here is delivered again
		}
	}()
	return background(ctx, run, func() error { return errors.Join(group.Close(), shut()) }), nil
}

// Setup implements sarama.ConsumerGroupHandler: it commits now and then.
func (l *loop) Setup(s sarama.ConsumerGroupSession) error {
	l.commit.Go(func() {
		tick := time.NewTicker(commitEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.Commit()
			case <-s.Context().Done():
				return
			}
		}
	})
	return nil
}

// Cleanup implements sarama.ConsumerGroupHandler.
func (l *loop) Cleanup(s sarama.ConsumerGroupSession) error {
	l.commit.Wait()
	s.Commit()
	return nil
}

// ConsumeClaim implements sarama.ConsumerGroupHandler.
func (l *loop) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		if s.Context().Err() != nil {
			return nil
		}
		if err := l.handle(s.Context(), m); err != nil {
			return err
		}
		s.MarkMessage(m, "")
		l.done.add(1)
	}
	return nil
}
