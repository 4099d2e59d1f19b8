//go:build long

package prove

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/internal/servertest"
)

// A consumer of a topic gets all messages, and doubles only those that a kill explains. It needs
// real brokers: in kfake a member that is killed while it joins never leaves its group.
func TestConsumer(t *testing.T) {
	redis, brokers, topic := servertest.Redis(t), servertest.Kafka(t), servertest.Prefix(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	made, err := kadm.NewClient(client).CreateTopic(t.Context(), 2, 1, nil, topic)
	require.NoError(t, errors.Join(err, made.Err))
	t.Cleanup(func() { _, _ = kadm.NewClient(client).DeleteTopic(context.Background(), topic) })
	r := either(t, append([]string{"--json", "--kills", "3", "--every", "1500ms", "--settle",
		"90s", "--brokers", strings.Join(brokers, ","), "--topic", topic, "--"},
		with([]string{built(t, "consumer")}, "TEST_REDIS="+redis,
			"TEST_PREFIX="+servertest.Prefix(t))...)...)
	assert.Empty(t, r.Lost)
	assert.Equal(t, 3, r.Kills)
	assert.Equal(t, r.Messages, r.Once+len(r.Doubled))
	for _, w := range r.Doubled {
		assert.NotEmpty(t, w.Kills, w.ID)
	}
}
