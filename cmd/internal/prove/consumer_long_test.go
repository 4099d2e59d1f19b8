//go:build long

package prove

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceward/onceward/internal/servertest"
)

// A consumer of a topic gets all messages, and doubles only what a kill explains.
func TestConsumer(t *testing.T) {
	redis := servertest.Redis(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"),
		kfake.GroupMinSessionTimeout(200*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	r := either(t, append([]string{"--json", "--kills", "3", "--every", "1500ms", "--settle",
		"90s", "--brokers",
		strings.Join(cluster.ListenAddrs(), ","), "--topic", "orders", "--"},
		with([]string{built(t, "consumer")}, "TEST_REDIS="+redis,
			"TEST_PREFIX="+servertest.Prefix(t))...)...)
	assert.Empty(t, r.Lost)
	assert.Equal(t, 3, r.Kills)
	assert.Equal(t, r.Messages, r.Once+len(r.Doubled))
	for _, w := range r.Doubled {
		assert.NotEmpty(t, w.Kills, w.ID)
	}
}
