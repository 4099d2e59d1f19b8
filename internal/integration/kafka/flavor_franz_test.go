package kafka_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
)

// franzFlavors consume with kafkafranz, the driver for franz-go.
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

// kafkafranz passes the scenarios that kafkasarama passes.
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

// seen returns a scenario that fails if the oracles find nothing of what findings plants.
func seen(findings func(*testing.T, flavor) []string) func(*testing.T, flavor) {
	return func(t *testing.T, f flavor) {
		t.Helper()
		require.NotEmpty(t, findings(t, f), "the oracles saw nothing wrong")
	}
}

// franzWith is a flavor whose clients have these options.
func franzWith(name string, opts ...kgo.Opt) flavor {
	return flavor{
		name: name, steady: true,
		producer: func(t *testing.T, brokers []string) kafkaadapter.Producer {
			t.Helper()
			return franzProducer(t, brokers, time.Second)
		},
		client: func(t *testing.T, m *member, mc *memberConfig) func(context.Context) error {
			t.Helper()
			require.True(t, mc.client == nil && mc.bug == 0, "this scenario is about sarama")
			c, err := kafkafranz.New(mc.group, mc.Config)
			require.NoError(t, err)
			m.close = func() error { return nil } // Run has a client of its own
			all := append(mc.franzOptions(), opts...)
			return func(ctx context.Context) error { return c.Run(ctx, all...) }
		},
	}
}
