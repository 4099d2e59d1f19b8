package saramapub_test

import (
	"errors"
	"testing"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/saramapub"
)

func TestCheckConfig(t *testing.T) {
	if err := saramapub.CheckConfig(saramapub.SafeConfig(sarama.NewConfig())); err != nil {
		t.Fatalf("SafeConfig: %v", err)
	}
	if err := saramapub.SafeConfig(sarama.NewConfig()).Validate(); err != nil {
		t.Fatalf("SafeConfig does not satisfy sarama: %v", err)
	}
	for field, edit := range map[string]func(*sarama.Config){
		"Producer.RequiredAcks": func(c *sarama.Config) {
			c.Producer.RequiredAcks = sarama.WaitForLocal
		},
		"Producer.Idempotent":     func(c *sarama.Config) { c.Producer.Idempotent = false },
		"Net.MaxOpenRequests":     func(c *sarama.Config) { c.Net.MaxOpenRequests = 5 },
		"Producer.Retry.Max":      func(c *sarama.Config) { c.Producer.Retry.Max = 0 },
		"Producer.Return":         func(c *sarama.Config) { c.Producer.Return.Successes = false },
		"Version":                 func(c *sarama.Config) { c.Version = sarama.V0_10_2_1 },
		"Producer.Transaction.ID": func(c *sarama.Config) { c.Producer.Transaction.ID = "t" },
		"Producer.Partitioner": func(c *sarama.Config) {
			c.Producer.Partitioner = sarama.NewRandomPartitioner
		},
	} {
		c := saramapub.SafeConfig(sarama.NewConfig())
		edit(c)
		var input *outbox.InputError
		if err := saramapub.CheckConfig(c); !errors.As(err, &input) ||
			input.Field != "sarama.Config."+field {
			t.Errorf("%s: %v", field, err)
		}
	}
	c := saramapub.SafeConfig(sarama.NewConfig())
	for name, chosen := range map[string]sarama.PartitionerConstructor{
		"manual": sarama.NewManualPartitioner, "reference": sarama.NewReferenceHashPartitioner,
		"consistent": sarama.NewConsistentCRCHashPartitioner,
	} {
		c.Producer.Partitioner = chosen
		if err := saramapub.CheckConfig(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var input *outbox.InputError
	if err := saramapub.CheckConfig(nil); !errors.As(err, &input) {
		t.Errorf("nil: %v", err)
	}
	if _, err := saramapub.New(nil); !errors.As(err, &input) {
		t.Errorf("no client: %v", err)
	}
}
