package txn_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
	"github.com/onceward/onceward/kafkaadapter/txn"
)

func valid() txn.Config {
	return txn.Config{
		Brokers: []string{"localhost:9092"}, Client: kafkasarama.SafeConfig(nil), Group: "g",
		Handler: txn.PerMessage(func(context.Context,
			*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
			return nil, nil
		}),
	}
}

// Every bad field is refused by its name.
func TestNewNamesTheField(t *testing.T) {
	for field, change := range map[string]func(*txn.Config){
		"Brokers": func(c *txn.Config) { c.Brokers = nil },
		"Brokers has": func(c *txn.Config) {
			c.Brokers = []string{"a:1", ""}
		},
		"Client is nil": func(c *txn.Config) { c.Client = nil },
		"Client.Version": func(c *txn.Config) {
			c.Client.Version = sarama.V2_4_0_0
		},
		"Client.Producer.Transaction.Retry.Max": func(c *txn.Config) {
			c.Client.Producer.Transaction.Retry.Max = 0
		},
		"Client is refused": func(c *txn.Config) {
			c.Client.Producer.Retry.Max = 0
		},
		"Group": func(c *txn.Config) { c.Group = "" },
		"Handler": func(c *txn.Config) {
			c.Handler = txn.PerMessage(nil)
		},
		"Attempts":           func(c *txn.Config) { c.Attempts = -1 },
		"IDPrefix":           func(c *txn.Config) { c.IDPrefix = "a/b" },
		"BatchMax":           func(c *txn.Config) { c.BatchMax = -1 },
		"BatchBytes":         func(c *txn.Config) { c.BatchBytes = -1 },
		"BatchWait":          func(c *txn.Config) { c.BatchWait = -1 },
		"TransactionTimeout": func(c *txn.Config) { c.TransactionTimeout = -1 },
		"TransactionTimeout is 1µs": func(c *txn.Config) {
			c.TransactionTimeout = time.Microsecond
		},
		"Timeout":   func(c *txn.Config) { c.Timeout = -1 },
		"Drain":     func(c *txn.Config) { c.Drain = -1 },
		"RetryMax":  func(c *txn.Config) { c.RetryMax = -1 },
		"RetryBase": func(c *txn.Config) { c.RetryBase = -1 },
		"RetryBase is 2s": func(c *txn.Config) {
			c.RetryBase, c.RetryMax = 2*time.Second, time.Second
		},
	} {
		t.Run(field, func(t *testing.T) {
			c := valid()
			change(&c)
			p, err := txn.New(c)
			var input *dedup.InputError
			assert.Nil(t, p)
			require.ErrorAs(t, err, &input)
			assert.True(t, strings.HasPrefix(err.Error(), "dedup: txn.Config."+field), err)
		})
	}
	_, err := txn.New(valid())
	assert.NoError(t, err)
}

// New changes nothing of the caller's configuration.
func TestClientIsCopied(t *testing.T) {
	c := valid()
	before := *c.Client
	_, err := txn.New(c)
	require.NoError(t, err)
	assert.Equal(t, before.Producer.Idempotent, c.Client.Producer.Idempotent)
	assert.Empty(t, c.Client.Producer.Transaction.ID)
	assert.Equal(t, before.Net.MaxOpenRequests, c.Client.Net.MaxOpenRequests)
}

// Every setting under which messages would be lost or doubled is refused by its name.
func TestCheckConfigNamesTheField(t *testing.T) {
	p, err := txn.New(valid())
	require.NoError(t, err)
	for field, change := range map[string]func(*sarama.Config){
		"Consumer.Offsets.AutoCommit.Enable": func(c *sarama.Config) {
			c.Consumer.Offsets.AutoCommit.Enable = true
		},
		"Consumer.Return.Errors": func(c *sarama.Config) {
			c.Consumer.Return.Errors = false
		},
		"Consumer.IsolationLevel": func(c *sarama.Config) {
			c.Consumer.IsolationLevel = sarama.ReadUncommitted
		},
		"Consumer.Offsets.Initial": func(c *sarama.Config) {
			c.Consumer.Offsets.Initial = sarama.OffsetNewest
		},
		"Consumer.Group.ResetInvalidOffsets": func(c *sarama.Config) {
			c.Consumer.Group.ResetInvalidOffsets = true
		},
		"Consumer.Fetch.Max": func(c *sarama.Config) {
			c.Consumer.Fetch.Max = 1 << 20
		},
		"Consumer.MaxWaitTime": func(c *sarama.Config) {
			c.Consumer.MaxWaitTime = 21 * time.Second
		},
		"Consumer.Group.InstanceId": func(c *sarama.Config) {
			c.Consumer.Group.InstanceId = "i"
		},
		"Consumer.Group.Rebalance.Timeout": func(c *sarama.Config) {
			c.Consumer.Group.Rebalance.Timeout = 10 * time.Second
		},
		"Consumer.Group.Session.Timeout": func(c *sarama.Config) {
			c.Consumer.Group.Session.Timeout = 29 * time.Second
		},
		"Version": func(c *sarama.Config) {
			c.Version = sarama.V2_4_0_0
		},
	} {
		t.Run(field, func(t *testing.T) {
			c := kafkasarama.SafeConfig(nil)
			change(c)
			var input *dedup.InputError
			require.ErrorAs(t, p.CheckConfig(c), &input)
			assert.Equal(t, "sarama.Config."+field, input.Field)
		})
	}
	assert.NoError(t, p.CheckConfig(kafkasarama.SafeConfig(nil)))
	assert.Error(t, p.CheckConfig(nil), "nil was accepted")
}
