package kafka_test

import (
	"context"
	"testing"

	"github.com/onceward/onceward/kafkaadapter"
)

// flavor is one way to consume: a client library, and how its group rebalances. A scenario knows
// nothing of a flavor but these fields.
type flavor struct {
	name string
	// client makes a member's client and consumer, and returns what runs them.
	client func(t *testing.T, m *member, mc *memberConfig) (run func(context.Context) error)
	// producer sends dead letters.
	producer func(t *testing.T, brokers []string) kafkaadapter.Producer
	// steady says that partitions which stay with their member go on during a rebalance.
	steady bool
}

// start makes a member that runs, and fails the test when it cannot.
func (f flavor) start(t *testing.T, mc memberConfig) *member {
	t.Helper()
	m := newMember(t, &mc)
	if mc.deadTopic != "" {
		mc.Park = deadLetters(t, f.producer(t, mc.brokers), mc.deadTopic)
	}
	m.run(t, f.client(t, m, &mc))
	return m
}

// eachFlavor runs a scenario on every flavor, at the same time.
func eachFlavor(t *testing.T, scenario func(t *testing.T, f flavor)) {
	t.Helper()
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, f)
		})
	}
}

// bug is what a scenario plants to see whether the oracles notice.
type bug int

const (
	// marksOnReceipt marks every message when it arrives, and commits what is marked.
	marksOnReceipt bug = iota + 1
	// commitsOnce does not look for the coordinator again after a refused commit.
	commitsOnce
	// sharesClient commits over the client of the consumer group.
	sharesClient
)
