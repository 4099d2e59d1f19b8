package kafka_test

import (
	"context"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

var (
	eager       = saramaWith("sarama eager", false, sarama.NewBalanceStrategyRange)
	cooperative = saramaWith("sarama cooperative", true, sarama.NewBalanceStrategyCooperativeSticky)
	flavors     = []flavor{eager, cooperative}
)

// saramaWith returns a flavor whose members offer the group these strategies. Each member makes its
// own, because some strategies have a state.
func saramaWith(name string, steady bool, strategies ...func() sarama.BalanceStrategy) flavor {
	return flavor{
		name: name, steady: steady, producer: saramaProducer,
		client: func(t *testing.T, m *member, mc *memberConfig) func(context.Context) error {
			t.Helper()
			c := mc.saramaConfig()
			c.Consumer.Group.Rebalance.GroupStrategies = nil
			for _, strategy := range strategies {
				c.Consumer.Group.Rebalance.GroupStrategies =
					append(c.Consumer.Group.Rebalance.GroupStrategies, strategy())
			}
			if mc.client != nil {
				mc.client(c)
			}
			s, err := newSaramaMember(&mc.membership, c, mc.Config, mc.bug)
			require.NoError(t, err)
			m.close = s.group.Close
			return s.run
		},
	}
}
