package kafkabench

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
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/kafkaadapter"
)

// commitEvery is the adapter's default, so that all sides commit as often.
const commitEvery = 250 * time.Millisecond

// clientConfig is the client of every side.
func clientConfig() *sarama.Config { return kafkaadapter.SafeConfig(sarama.NewConfig()) }

// handler takes messages of one partition that are there already.
type handler func(context.Context, []*sarama.ConsumerMessage) error

// bare is the least that a consumer group can do: take each message and mark it.
func bare(ctx context.Context, j job) (*member, error) {
	return startLoop(ctx, j, 1, func(context.Context, []*sarama.ConsumerMessage) error {
		return nil
	}, func() error { return nil })
}

// id of a message, as a key of Redis that no other run has.
func (j job) id(m *sarama.ConsumerMessage) string { return j.group + string(m.Headers[0].Value) }

// naive is what people write by hand: SET NX, effect, SET, mark, one message after the
// other in each partition. A message whose first attempt died is skipped.
func naive(ctx context.Context, j job) (*member, error) {
	client := server.NewClient(j.redis, 0, 0)
	return startLoop(ctx, j, 1, func(ctx context.Context, one []*sarama.ConsumerMessage) error {
		key := j.id(one[0])
		err := client.SetArgs(ctx, key, "claimed", redis.SetArgs{Mode: "NX", TTL: peer.Lease}).Err()
		switch {
		case errors.Is(err, redis.Nil):
			return nil // a duplicate
		case err != nil:
			return err
		}
		// after the effect, which is none here
		return client.Set(ctx, key, "done", peer.Window).Err()
	}, client.Close)
}

// byHand is the same in pipelines, of as many messages as are there: what people write who need the
// speed. Nothing but the mark is of the order of the messages.
func byHand(ctx context.Context, j job) (*member, error) {
	client := server.NewClient(j.redis, 0, 0)
	return startLoop(ctx, j, work.Typical,
		func(ctx context.Context, messages []*sarama.ConsumerMessage) error {
			claims, done := client.Pipeline(), client.Pipeline()
			for _, m := range messages {
				claims.SetArgs(ctx, j.id(m), "claimed", redis.SetArgs{Mode: "NX", TTL: peer.Lease})
			}
			replies, err := claims.Exec(ctx)
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			for i, reply := range replies {
				switch err := reply.Err(); {
				case err == nil:
					// after the effect, which is none here
					done.Set(ctx, j.id(messages[i]), "done", peer.Window)
				case !errors.Is(err, redis.Nil):
					return err
				}
			}
			if done.Len() == 0 {
				return nil
			}
			_, err = done.Exec(ctx)
			return err
		}, client.Close)
}

// loop is a sarama.ConsumerGroupHandler of the usual form.
type loop struct {
	handle handler
	most   int // messages at a time
	done   *progress
	commit sync.WaitGroup
}

func startLoop(ctx context.Context, j job, most int, handle handler,
	shut func() error) (*member, error) {
	group, err := sarama.NewConsumerGroup(j.brokers, j.group, clientConfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kafkabench: %w", err), shut())
	}
	l := &loop{handle: handle, most: most, done: j.done}
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
	messages := make([]*sarama.ConsumerMessage, 0, l.most)
	for m := range claim.Messages() {
		messages = append(messages[:0], m)
		for len(messages) < l.most && len(claim.Messages()) > 0 { // this is its only reader
			messages = append(messages, <-claim.Messages())
		}
		if s.Context().Err() != nil {
			return nil
		}
		if err := l.handle(s.Context(), messages); err != nil {
			return err
		}
		s.MarkMessage(messages[len(messages)-1], "")
		l.done.add(len(messages))
	}
	return nil
}
