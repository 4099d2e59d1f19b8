package kafka_test

import (
	"errors"
	"testing"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter"
)

// flavor is one way to consume: a client library, and how its group rebalances. Every
// scenario runs on each of them, and none knows more of it than this.
type flavor struct {
	name string
	// start makes a member that runs, and fails the test when it cannot.
	start func(t *testing.T, mc memberConfig) *member
	// closed reports whether err is what Run returns when its client is closed under it.
	closed func(err error) bool
	// stopped reports whether err is what Run returns for a message that can neither be
	// processed nor parked, and where it lies.
	stopped func(err error) (offset int64, ok bool)
	// steady says that partitions which stay with their member go on during a rebalance.
	steady bool
}

var (
	eager = flavor{
		name: "sarama eager", closed: closedGroup, stopped: unprocessable,
		start: saramaWith(sarama.NewBalanceStrategyRange),
	}
	cooperative = flavor{
		name: "sarama cooperative", closed: closedGroup, stopped: unprocessable, steady: true,
		start: saramaWith(sarama.NewBalanceStrategyCooperativeSticky),
	}
	flavors = []flavor{eager, cooperative}
)

func closedGroup(err error) bool { return errors.Is(err, sarama.ErrClosedConsumerGroup) }

func unprocessable(err error) (int64, bool) {
	var message *kafkaadapter.UnprocessableError
	if !errors.As(err, &message) {
		return 0, false
	}
	return message.Offset, true
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
	// marksOnReceipt marks every message when it arrives.
	marksOnReceipt bug = iota + 1
	// commitsOnce makes one attempt to commit what was marked, whatever comes of it.
	commitsOnce
)
