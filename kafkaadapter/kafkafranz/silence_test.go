package kafkafranz

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// quiet consumes until the test ends. It sends the group's errors to reports, and the ids of the
// messages to ids.
func quiet(t *testing.T, share bool, brokers []string) (reports chan error, ids chan string) {
	t.Helper()
	reports, ids = make(chan error, 100), make(chan string, 100)
	d, err := dedup.New(dedup.Memory(1<<20), dedup.Config{Namespace: "t", Window: time.Hour,
		LeaseTTL: time.Minute, Hold: time.Minute})
	require.NoError(t, err)
	cfg := kafkaadapter.Config{
		Deduper:  d,
		Observer: kafkaadapter.Observer{GroupError: func(err error) { reports <- err }},
		Tuning:   kafkaadapter.Tuning{Drain: time.Second},
		Handler: func(_ context.Context, m *kafkaadapter.Message) error {
			ids <- m.ID
			return nil
		},
	}
	opts := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(orders),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(time.Second)}
	var run func(context.Context, ...kgo.Opt) error
	if share {
		member, err := NewShare(group, cfg, ShareOptions{})
		require.NoError(t, err)
		run = member.Run
	} else {
		member, err := New(group, cfg)
		require.NoError(t, err)
		run = member.Run
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, opts...) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return reports, ids
}

// next returns the next report that is a want; it skips the others.
func next(t *testing.T, reports chan error, want error) error {
	t.Helper()
	patience := time.After(time.Minute)
	for {
		select {
		case err := <-reports:
			if errors.Is(err, want) {
				return err
			}
		case <-patience:
			require.Fail(t, "no report", "of %v", want)
		}
	}
}

// kgo retries a refused connection and reports nothing. So the consumer reports it.
func TestUnreachableBrokersAreReported(t *testing.T) {
	for name, share := range map[string]bool{"group": false, "share group": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reports, _ := quiet(t, share, []string{"127.0.0.1:1"})
			err := next(t, reports, syscall.ECONNREFUSED)
			assert.Contains(t, err.Error(), `the cluster of ["127.0.0.1:1"]`)
		})
	}
}

// A topic that does not exist is reported, again and again, and is read once it exists.
func TestMissingTopicIsReported(t *testing.T) {
	for name, share := range map[string]bool{"group": false, "share group": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1),
				kfake.BrokerConfigs(map[string]string{"auto.create.topics.enable": "false"}))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			cluster.SetGroupConfigs(group, map[string]string{"share.auto.offset.reset": "earliest"})
			reports, ids := quiet(t, share, cluster.ListenAddrs())
			for range 2 {
				err = next(t, reports, kerr.UnknownTopicOrPartition)
				assert.Contains(t, err.Error(), `topic "orders"`)
			}
			r := rigOn(t, cluster)
			require.NoError(t, cluster.CreateTopic(orders, 1, nil))
			r.produce(0, 0, 1)
			select {
			case id := <-ids:
				assert.Equal(t, "evt_000000", id)
			case <-time.After(time.Minute):
				require.Fail(t, "the topic is not read")
			}
		})
	}
}

// Other checks report a missing topic that the client has found before. A topic that it never found
// is reported after ten failed looks in a row.
func TestOnlyUnseenTopicsAreReported(t *testing.T) {
	var told []error
	w := newTopicWatch(nil, nil, func(err error) { told = append(told, err) })
	missing := error(kerr.UnknownTopicOrPartition)
	for range topicUnseen - 1 {
		w.exists(orders, missing)
	}
	assert.Empty(t, told)
	w.exists(orders, nil)
	w.exists(orders, missing)
	assert.Empty(t, told, "not in a row")
	for range topicUnseen - 1 {
		w.exists(orders, missing)
	}
	assert.Len(t, told, 1)
	w.uuids[payments] = [16]byte{1}
	for range 3 * topicUnseen {
		w.exists(payments, missing)
	}
	assert.Len(t, told, 1)
}

// If a client's regular expression has found no topics, lookUp asks for none instead of all.
func TestLookWithoutTopics(t *testing.T) {
	r := newRig(t, 1)
	answer, err := lookUp(t.Context(), r.client, nil)
	require.NoError(t, err)
	assert.Empty(t, answer)
}
