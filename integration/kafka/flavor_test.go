package kafka_test

import (
	"errors"
	"testing"

	"github.com/IBM/sarama"
)

// flavor is one way to consume: a client library, and how its group rebalances. Every
// scenario runs on each of them, and none knows more of it than this.
type flavor struct {
	name string
	// start makes a member that runs, and fails the test when it cannot.
	start func(t *testing.T, mc memberConfig) *member
	// closed reports whether err is what Run returns when its client is closed under it.
	closed func(err error) bool
	// steady says that partitions which stay with their member go on during a rebalance.
	steady bool
}

var (
	eager = flavor{
		name: "sarama eager", closed: closedGroup,
		start: saramaWith(sarama.NewBalanceStrategyRange),
	}
	cooperative = flavor{
		name: "sarama cooperative", closed: closedGroup, steady: true,
		start: saramaWith(sarama.NewBalanceStrategyCooperativeSticky),
	}
	flavors = []flavor{eager, cooperative}
)

func closedGroup(err error) bool { return errors.Is(err, sarama.ErrClosedConsumerGroup) }

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
	noBug bug = iota
	// marksOnReceipt marks every message when it arrives.
	marksOnReceipt
	// commitsOnce makes one attempt to commit what was marked, whatever comes of it.
	commitsOnce
)
