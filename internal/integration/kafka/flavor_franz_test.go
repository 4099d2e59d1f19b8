package kafka_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter/franz"
)

// franzFlavors are the twin on franz-go.
var franzFlavors = []flavor{
	franzWith("franz classic", kgo.Balancers(kgo.CooperativeStickyBalancer())),
	franzWith("franz KIP-848", kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()),
}

// unmoved are scenarios about messages, the store and the oracles, in which no partition moves
// between members that live: how a group rebalances changes nothing in them.
var unmoved = []string{
	"crash after danger", "crash around the transaction", "store is down", "store is unsteady",
	"poison and its replay", "nothing is skipped", "mismatch", "panics", "every shape",
	"largest messages", "compaction", "gaps", "planted: busy is done",
	"planted: failure is done", "planted: shared claims",
}

// The twin stands what the adapter stands.
func TestTwin(t *testing.T) {
	for _, f := range franzFlavors {
		for name, scenario := range map[string]func(*testing.T, flavor){
			"crash between claim and effect":  crashBetweenClaimAndEffect,
			"crash between effect and record": crashBetweenEffectAndRecord,
			"crash after danger":              crashAfterMarkIsAsked,
			"crash around the transaction":    crashAroundTheTransaction,
			"crash between record and commit": crashBetweenRecordAndCommit,
			"refused commits":                 refusedCommitsAreRepeated,
			"commit timed out":                commitAppliedButTimedOut,
			"gaps":                            committedAcrossGaps,
			"coordinator moves":               coordinatorMoves,
			"one stuck key":                   oneStuckKey,
			"zombie":                          zombieWakes,
			"owner of the same id dies":       ownerOfTheSameIDDies,
			"store is down":                   storeIsDown,
			"store is unsteady":               storeIsUnsteady,
			"poison and its replay":           poisonAndItsReplay,
			"nothing is skipped":              nothingIsSkippedInSilence,
			"mismatch":                        mismatchIsParked,
			"panics":                          handlersPanic,
			"every shape":                     messagesOfEveryShape,
			"largest messages":                largestMessages,
			"compaction":                      committedAcrossCompaction,
			"partitions are added":            partitionsAreAdded,
			"static member":                   staticMemberRestarts,
			"what stays goes on":              whatStaysGoesOn,
			"brokers in trouble":              brokersInTrouble,
			"planted: busy is done":           seen(seenBusyIsDone),
			"planted: failure is done":        seen(seenFailureIsDone),
			"planted: shared claims":          seen(seenSharedClaims),
		} {
			if f.name != franzFlavors[0].name && !everyFlavor && slices.Contains(unmoved, name) {
				continue
			}
			t.Run(f.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				scenario(t, f)
			})
		}
	}
}

// seen is the scenario in which the oracles see what is planted.
func seen(findings func(*testing.T, flavor) []string) func(*testing.T, flavor) {
	return func(t *testing.T, f flavor) {
		t.Helper()
		if len(findings(t, f)) == 0 {
			t.Fatal("the oracles saw nothing wrong")
		}
	}
}

// franzWith is a flavor whose clients have these options.
func franzWith(name string, opts ...kgo.Opt) flavor {
	return flavor{
		name: name, steady: true,
		closed: func(error) bool { return false }, // the client is Run's own
		stopped: func(err error) (int64, bool) {
			var message *franz.UnprocessableError
			if !errors.As(err, &message) {
				return 0, false
			}
			return message.Offset, true
		},
		start: func(t *testing.T, mc memberConfig) *member {
			t.Helper()
			if mc.adapter != nil || mc.client != nil || mc.wrap != nil || mc.bug != 0 {
				t.Fatal("this scenario is about sarama")
			}
			m := newMember(t, &mc)
			cfg, closeProducer := franzConfig(t, m, &mc)
			c, err := franz.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			m.close = closeProducer
			all := append(franzOptions(m, &mc), opts...)
			m.run(t, func(ctx context.Context) error { return c.Run(ctx, all...) })
			return m
		},
	}
}

// franzOptions are the client's part of a member's settings.
func franzOptions(m *member, mc *memberConfig) []kgo.Opt {
	or := func(d, otherwise time.Duration) time.Duration {
		if d > 0 {
			return d
		}
		return otherwise
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(mc.brokers...), kgo.Dialer(m.dialer.DialContext),
		kgo.ConsumerGroup(mc.group), kgo.ConsumeTopics(mc.topic),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.HeartbeatInterval(250 * time.Millisecond),
		kgo.SessionTimeout(or(mc.session, 1500*time.Millisecond)),
		kgo.RebalanceTimeout(or(mc.rebalance, 5*time.Second)),
	}
	if mc.instance != "" {
		opts = append(opts, kgo.InstanceID(mc.instance))
	}
	if mc.refresh > 0 {
		opts = append(opts, kgo.MetadataMinAge(mc.refresh/2), kgo.MetadataMaxAge(mc.refresh))
	}
	if mc.fetch > 0 {
		opts = append(opts, kgo.FetchMaxPartitionBytes(mc.fetch), kgo.FetchMaxBytes(mc.fetch))
	}
	return opts
}

// franzConfig is the consumer's part, and what closes the producer of its dead letters.
func franzConfig(t *testing.T, m *member, mc *memberConfig) (franz.Config, func() error) {
	t.Helper()
	handle := m.count(mc.handler)
	cfg := franz.Config{
		Deduper: m.dedup, Scope: sceneScope, Unclaimed: mc.unclaimed, Fingerprint: mc.fingerprint,
		Timeout: mc.timeout,
		Handler: func(ctx context.Context, msg *franz.Message) error {
			return handle(ctx, franzNeutral(msg))
		},
		Observer: franzObserver(mc.observer), Workers: mc.workers, HighWater: mc.highWater,
		LowWater: mc.lowWater,
		Drain:    time.Second, CommitEvery: 50 * time.Millisecond, CommitCount: 200,
		RetryBase: 20 * time.Millisecond, RetryMax: 500 * time.Millisecond,
	}
	if mc.unordered {
		cfg.Order = franz.Unordered
	}
	if mc.ranges != nil {
		franzRanges(&cfg, mc.ranges)
	}
	if mc.drain > 0 {
		cfg.Drain = mc.drain
	}
	if mc.park != nil {
		cfg.Park = func(ctx context.Context, msg *franz.Message, reason error) error {
			return mc.park(ctx, franzNeutral(msg), reason)
		}
	}
	if mc.deadTopic == "" {
		return cfg, func() error { return nil }
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(mc.brokers...),
		kgo.RecordDeliveryTimeout(time.Second),
		kgo.MetadataMinAge(100*time.Millisecond)) // before which a refused letter is not sent again
	if err != nil {
		t.Fatal(err)
	}
	cfg.Park, err = franz.DeadLetters(franz.DeadLetterConfig{
		Client: producer, Topic: func(*franz.Message) string { return mc.deadTopic },
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, sync.OnceValue(func() error { producer.Close(); return nil })
}

func franzNeutral(m *franz.Message) *kafkaMessage {
	n := franzReceived(m.Record)
	n.ID, n.Attempt = m.ID, m.Attempt
	return n
}

func franzReceived(r *kgo.Record) *kafkaMessage {
	return &kafkaMessage{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key,
		Value: r.Value}
}

func franzObserver(o observer) franz.Observer {
	out := franz.Observer{Committing: o.Committing, Revoked: o.Revoked, Paused: o.Paused,
		GroupError: o.GroupError}
	if o.Delivered != nil {
		out.Delivered = func(r *kgo.Record) { o.Delivered(franzReceived(r)) }
	}
	if o.Skipped != nil {
		out.Skipped = func(m *franz.Message, cause driver.Cause, _ time.Duration) {
			o.Skipped(franzNeutral(m), cause)
		}
	}
	if o.Waiting != nil {
		out.Waiting = func(m *franz.Message) { o.Waiting(franzNeutral(m)) }
	}
	if o.Parked != nil {
		out.Parked = func(m *franz.Message, reason error) { o.Parked(franzNeutral(m), reason) }
	}
	return out
}

// franzRanges has the member handle ranges.
func franzRanges(cfg *franz.Config, handle func(context.Context, stretch) error) {
	cfg.Handler, cfg.Order, cfg.BatchMax = nil, franz.ByPartition, 16
	cfg.RangeHandler = func(ctx context.Context, r *franz.Range) error {
		return handle(ctx, stretch{r.Topic, r.TopicID, r.Partition, r.From, r.To,
			func(offset int64) (ms []*kafkaMessage) {
				for _, m := range r.Since(offset) {
					ms = append(ms, franzNeutral(m))
				}
				return ms
			}})
	}
}
