package kafka_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasegmentio"
)

// segmentio is the driver for kafka-go. All partitions of its members move in a rebalance.
var segmentio = flavor{
	name: "segmentio",
	producer: func(t *testing.T, brokers []string) kafkaadapter.Producer {
		t.Helper()
		w := &kafka.Writer{Addr: kafka.TCP(brokers...), RequiredAcks: kafka.RequireAll,
			BatchTimeout: 10 * time.Millisecond, MaxAttempts: 2, WriteTimeout: time.Second,
			Transport: &kafka.Transport{MetadataTTL: time.Second}}
		t.Cleanup(func() { _ = w.Close() })
		producer, err := kafkasegmentio.Producer(w)
		require.NoError(t, err)
		return producer
	},
	client: func(t *testing.T, m *member, mc *memberConfig) func(context.Context) error {
		t.Helper()
		require.True(t, mc.client == nil && mc.bug == 0, "this scenario is about sarama")
		c, err := mc.segmentio(mc.Config)
		require.NoError(t, err)
		m.close = func() error { return nil } // Run has connections of its own
		return c.Run
	},
}

// segmentio makes a member's consumer.
func (m *membership) segmentio(cfg kafkaadapter.Config) (*kafkasegmentio.Consumer, error) {
	transport := &kafka.Transport{ClientID: m.name}
	if m.dialer != nil {
		transport.Dial = m.dialer.DialContext
	}
	return kafkasegmentio.New(m.brokers, m.group, m.topics, kafkasegmentio.Options{
		Transport:         transport,
		SessionTimeout:    cmp.Or(m.session, 1500*time.Millisecond),
		HeartbeatInterval: cmp.Or(m.heartbeat, 250*time.Millisecond),
		RebalanceTimeout:  cmp.Or(m.rebalance, 5*time.Second), FetchBytes: int(m.fetch),
	}, cfg)
}

// kafkasegmentio passes the scenarios that the other drivers pass.
func TestSegmentio(t *testing.T) {
	for name, scenario := range map[string]func(*testing.T, flavor){
		"crash between claim and effect":  crashBetweenClaimAndEffect,
		"crash between effect and record": crashBetweenEffectAndRecord,
		"crash between record and commit": crashBetweenRecordAndCommit,
		"refused commits":                 refusedCommitsAreRepeated,
		"commit timed out":                commitAppliedButTimedOut,
		"gaps":                            committedAcrossGaps,
		"coordinator moves":               coordinatorMoves,
		"rebalances do not fence":         rebalancesDoNotFence,
		"one stuck key":                   oneStuckKey,
		"zombie":                          zombieWakes,
		"owner of the same id dies":       ownerOfTheSameIDDies,
		"poison and its replay":           poisonAndItsReplay,
		"crash after danger":              crashAfterMarkIsAsked,
		"crash around the transaction":    crashAroundTheTransaction,
		"huge id":                         hugeIDIsParked,
		"commits are refused for ever":    commitsAreRefusedForEver,
		"handlers do not wait":            handlersDoNotWaitForCommits,
		"store is down":                   storeIsDown,
		"store is unsteady":               storeIsUnsteady,
		"outage longer than the lease":    outageLongerThanTheLease,
		"nothing is skipped":              nothingIsSkippedInSilence,
		"mismatch":                        mismatchIsParked,
		"panics":                          handlersPanic,
		"planted: busy is done":           seen(seenBusyIsDone),
		"planted: failure is done":        seen(seenFailureIsDone),
		"planted: shared claims":          seen(seenSharedClaims),
		"every shape":                     messagesOfEveryShape,
		"largest messages":                largestMessages,
		"compaction":                      committedAcrossCompaction,
		"offset out of range":             offsetOutOfRange,
		"topic is made again":             topicIsMadeAgain,
		"positions of a recreated topic":  positionsOfARecreatedTopic,
		"partitions are added":            partitionsAreAdded,
		"broker restarts":                 brokerRestarts,
		"brokers in trouble":              brokersInTrouble,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t, segmentio)
		})
	}
}
