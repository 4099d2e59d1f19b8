package franzpub_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/franzpub"
)

func client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestNew(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{
		"defaults":  nil,
		"sticky":    {kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil))},
		"by itself": {kgo.RecordPartitioner(kgo.ManualPartitioner())},
	} {
		_, err := franzpub.New(client(t, opts...))
		assert.NoError(t, err, name)
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
		_, err := franzpub.New(client(t, opts...))
		require.ErrorAs(t, err, &input, option)
		assert.Equal(t, "kgo."+option, input.Field, option)
	}
	var input *outbox.InputError
	_, err := franzpub.New(nil)
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "kgo.Client", input.Field)
}
