package kafkabench

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// newGroup makes the client that all sides use.
func (j job) newGroup(autoCommit bool) (sarama.ConsumerGroup, *sarama.Config) {
	cfg := kafkasarama.SafeConfig(sarama.NewConfig())
	cfg.Consumer.Offsets.AutoCommit.Enable = autoCommit // the adapter commits by itself, as often
	cfg.Consumer.Offsets.AutoCommit.Interval = 250 * time.Millisecond
	cfg.Consumer.Return.Errors = !autoCommit // failed messages are redelivered to others
	group := must.Get(sarama.NewConsumerGroup(j.brokers, j.group, cfg))
	j.Defer(group.Close)
	return group, cfg
}

// adapter is kafkasarama with claims in Redis. A message is finished when it is on record, or known
// to be a duplicate.
func adapter(l work.Layout) func(context.Context, job) consumer {
	return func(ctx context.Context, j job) consumer {
		handle := func(_ context.Context, m *kafkaadapter.Message) error {
			j.effect(m.Raw.(*sarama.ConsumerMessage)) //nolint:errcheck // kafkasarama has put it there
			return nil
		}
		return j.claimed(ctx, l, handle, dedup.Observer{
			Ended: func(dedup.Event) { j.done.Add(1) },
			Claimed: func(e dedup.Event) {
				if e.Outcome == dedup.Duplicate {
					j.done.Add(1)
				}
			},
		})
	}
}

func (j job) claimed(ctx context.Context, l work.Layout, handle kafkaadapter.Handler,
	o dedup.Observer) consumer {
	d := l.Open(ctx, j.Setup, j.redis, 0, func(c *dedup.Config) { c.Observer = o })
	return j.adapted(kafkaadapter.Config{Deduper: d.Deduper, Handler: handle})
}

// unclaimed is kafkasarama without a store: only order, watermark and commit.
func unclaimed(_ context.Context, j job) consumer {
	handle := func(context.Context, *kafkaadapter.Message) error { j.done.Add(1); return nil }
	return j.adapted(kafkaadapter.Config{Unclaimed: true, Handler: handle})
}

func (j job) adapted(cfg kafkaadapter.Config) consumer {
	group, clientConfig := j.newGroup(false)
	client := must.Get(sarama.NewClient(j.brokers, clientConfig))
	j.Defer(client.Close)
	c := must.Get(kafkasarama.New(client, j.group, cfg))
	must.Do(c.CheckConfig(clientConfig))
	return func(ctx context.Context) error { return c.Run(ctx, group, []string{j.log.Topic}) }
}

// redisOnly claims and completes the ids of the log in batches, with one goroutine per partition
// and without Kafka: the most that the store allows a consumer.
func redisOnly(l work.Layout) func(context.Context, job) consumer {
	return func(ctx context.Context, j job) consumer {
		d := l.Open(ctx, j.Setup, j.redis, 0)
		cycle := d.Batch([]driver.Outcome{dedup.Acquired, dedup.Duplicate}, nil)
		partition := func(ctx context.Context, n int) {
			for batch := range slices.Chunk(j.log.IDs[n], work.Typical) { // the adapter's default
				if ctx.Err() != nil {
					return
				}
				cycle(ctx, 0, batch)
				j.done.Add(int64(len(batch)))
			}
		}
		return func(ctx context.Context) error {
			return must.Try(func() { work.Parallel(ctx, len(j.log.IDs), partition) })
		}
	}
}

// bare is the least that a consumer group can do: take each message and mark it.
func bare(_ context.Context, j job) consumer {
	return j.loop(1, func(context.Context, []*sarama.ConsumerMessage) error { return nil })
}

// id is the id of a message, as a Redis key that no other run has.
func (j job) id(m *sarama.ConsumerMessage) string { return j.group + string(m.Headers[0].Value) }

// naive is what people write by hand: SET NX, effect, SET, mark, one message after another in each
// partition. It skips a message whose first attempt died.
func naive(_ context.Context, j job) consumer {
	client := server.NewClient(j.Setup, j.redis, 0, 0)
	return j.loop(1, func(ctx context.Context, one []*sarama.ConsumerMessage) error {
		key := j.id(one[0])
		err := client.SetArgs(ctx, key, "claimed", redis.SetArgs{Mode: "NX", TTL: peer.Lease}).Err()
		switch {
		case errors.Is(err, redis.Nil):
			return nil // a duplicate
		case err != nil:
			return err
		}
		j.effect(one[0])
		return client.Set(ctx, key, "done", peer.Window).Err()
	})
}

// byHand does the same in pipelines of as many messages as are there: what people write for speed.
// Only the marks are in the order of the messages.
func byHand(_ context.Context, j job) consumer {
	client := server.NewClient(j.Setup, j.redis, 0, 0)
	return j.loop(work.Typical, func(ctx context.Context, some []*sarama.ConsumerMessage) error {
		claims, done := client.Pipeline(), client.Pipeline()
		for _, m := range some {
			claims.SetArgs(ctx, j.id(m), "claimed", redis.SetArgs{Mode: "NX", TTL: peer.Lease})
		}
		replies, err := claims.Exec(ctx)
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		for i, reply := range replies {
			switch err := reply.Err(); {
			case err == nil:
				j.effect(some[i])
				done.Set(ctx, j.id(some[i]), "done", peer.Window)
			case !errors.Is(err, redis.Nil):
				return err
			}
		}
		_, err = done.Exec(ctx) // it does nothing without a command
		return err
	})
}

// handler takes messages of one partition that have already arrived.
type handler func(context.Context, []*sarama.ConsumerMessage) error

// loop is a sarama.ConsumerGroupHandler of the usual form.
type loop struct {
	handle handler
	most   int // most messages at a time
	done   *atomic.Int64
}

func (j job) loop(most int, handle handler) consumer {
	group, _ := j.newGroup(true)
	return func(ctx context.Context) error {
		for ctx.Err() == nil {
			topics := []string{j.log.Topic}
			if err := group.Consume(ctx, topics, loop{handle, most, j.done}); err != nil {
				return err
			}
		}
		return nil
	}
}

func (loop) Setup(sarama.ConsumerGroupSession) error { return nil }

func (loop) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (l loop) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	messages := make([]*sarama.ConsumerMessage, 0, l.most)
	for m := range claim.Messages() {
		messages = append(messages[:0], m)
		for len(messages) < l.most && len(claim.Messages()) > 0 { // nothing else reads this channel
			messages = append(messages, <-claim.Messages())
		}
		err := l.handle(s.Context(), messages)
		if s.Context().Err() != nil { // messages that it interrupted are delivered again
			return nil
		}
		if err != nil {
			return err
		}
		s.MarkMessage(messages[len(messages)-1], "")
		l.done.Add(int64(len(messages)))
	}
	return nil
}
