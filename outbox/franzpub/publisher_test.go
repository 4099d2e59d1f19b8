package franzpub_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/franzpub"
)

func client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNew(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{
		"defaults":  nil,
		"sticky":    {kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil))},
		"by itself": {kgo.RecordPartitioner(kgo.ManualPartitioner())},
	} {
		if _, err := franzpub.New(client(t, opts...)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for option, opts := range map[string][]kgo.Opt{
		"RequiredAcks": {kgo.RequiredAcks(kgo.LeaderAck()),
			kgo.DisableIdempotentWrite()},
		"DisableIdempotentWrite":             {kgo.DisableIdempotentWrite()},
		"AllowIdempotentProduceCancellation": {kgo.AllowIdempotentProduceCancellation()},
		"TransactionalID":                    {kgo.TransactionalID("t")},
		"RecordPartitioner":                  {kgo.RecordPartitioner(kgo.RoundRobinPartitioner())},
	} {
		var input *outbox.InputError
		if _, err := franzpub.New(client(t, opts...)); !errors.As(err, &input) ||
			input.Field != "kgo."+option {
			t.Errorf("%s: %v", option, err)
		}
	}
	var input *outbox.InputError
	if _, err := franzpub.New(nil); !errors.As(err, &input) || input.Field != "kgo.Client" {
		t.Errorf("no client: %v", err)
	}
}
