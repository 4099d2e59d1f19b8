package saramapub_test

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/saramapub"
)

func TestCheckConfig(t *testing.T) {
	require.NoError(t, saramapub.CheckConfig(saramapub.SafeConfig(sarama.NewConfig())))
	require.NoError(t, saramapub.SafeConfig(sarama.NewConfig()).Validate())
	for field, edit := range map[string]func(*sarama.Config){
		"Producer.RequiredAcks": func(c *sarama.Config) {
			c.Producer.RequiredAcks = sarama.WaitForLocal
		},
		"Producer.Idempotent":      func(c *sarama.Config) { c.Producer.Idempotent = false },
		"Net.MaxOpenRequests":      func(c *sarama.Config) { c.Net.MaxOpenRequests = 5 },
		"Producer.Retry.Max":       func(c *sarama.Config) { c.Producer.Retry.Max = 0 },
		"Producer.Return":          func(c *sarama.Config) { c.Producer.Return.Successes = false },
		"Version":                  func(c *sarama.Config) { c.Version = sarama.V0_10_2_1 },
		"Producer.Transaction.ID":  func(c *sarama.Config) { c.Producer.Transaction.ID = "t" },
		"Producer.Flush.Frequency": func(c *sarama.Config) { c.Producer.Flush.Messages = 100 },
		"Producer.Partitioner": func(c *sarama.Config) {
			c.Producer.Partitioner = sarama.NewRandomPartitioner
		},
	} {
		c := saramapub.SafeConfig(sarama.NewConfig())
		edit(c)
		var input *outbox.InputError
		require.ErrorAs(t, saramapub.CheckConfig(c), &input)
		assert.Equal(t, "sarama.Config."+field, input.Field)
	}
	batching := sarama.NewConfig()
	batching.Producer.Flush.Bytes = 1 << 20
	require.NoError(t, saramapub.CheckConfig(saramapub.SafeConfig(batching)))
	assert.Equal(t, 1<<20, batching.Producer.Flush.Bytes)
	c := saramapub.SafeConfig(sarama.NewConfig())
	for name, chosen := range map[string]sarama.PartitionerConstructor{
		"manual": sarama.NewManualPartitioner, "reference": sarama.NewReferenceHashPartitioner,
		"consistent": sarama.NewConsistentCRCHashPartitioner,
	} {
		c.Producer.Partitioner = chosen
		assert.NoError(t, saramapub.CheckConfig(c), name)
	}
	var input *outbox.InputError
	assert.ErrorAs(t, saramapub.CheckConfig(nil), &input)
	_, err := saramapub.New(nil)
	assert.ErrorAs(t, err, &input)
}
