package kafkafranz

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver/drivertest"
)

// balancers are those of a mode.
var balancers = map[drivertest.Mode][]kgo.Opt{
	drivertest.Eager:       {kgo.Balancers(kgo.RangeBalancer())},
	drivertest.Cooperative: {kgo.Balancers(kgo.CooperativeStickyBalancer())},
	drivertest.ServerSide:  {kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()},
}

// suiteMember is a consumer with the options of its client.
type suiteMember struct {
	*Consumer
	opts []kgo.Opt
}

// Run implements drivertest.Consumer.
func (m suiteMember) Run(ctx context.Context) error { return m.Consumer.Run(ctx, m.opts...) }

func newSuiteMember(m drivertest.Member, more ...kgo.Opt) (drivertest.Consumer, error) {
	c, err := New(m.Group, m.Config)
	if err != nil {
		return nil, err
	}
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(m.Brokers...), kgo.Dialer(m.Dial), kgo.ConsumeTopics(m.Topics...),
		kgo.SessionTimeout(m.Session), kgo.HeartbeatInterval(100 * time.Millisecond),
		kgo.RebalanceTimeout(m.Rebalance), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
	}, balancers[m.Mode]...)
	if m.Instance != "" {
		opts = append(opts, kgo.InstanceID(m.Instance))
	}
	if m.FetchBytes > 0 {
		opts = append(opts, kgo.FetchMaxPartitionBytes(int32(m.FetchBytes)))
	}
	return suiteMember{c, append(opts, more...)}, nil
}

func suiteProducer(t testing.TB, addrs []string, limit int) kafkaadapter.Producer {
	t.Helper()
	opts := []kgo.Opt{kgo.SeedBrokers(addrs...), kgo.RecordDeliveryTimeout(5 * time.Second)}
	if limit > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(int32(limit)))
	}
	client, err := kgo.NewClient(opts...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	p, err := Producer(client)
	require.NoError(t, err)
	return p
}

// codeOf is the protocol's error code in an error of the client.
func codeOf(err error) int16 {
	var code *kerr.Error
	if errors.As(err, &code) {
		return code.Code
	}
	return 0
}

func suiteDriver() drivertest.Driver {
	return drivertest.Driver{
		Cluster: func(t testing.TB) drivertest.Cluster { return newBrokers(t) },
		New: func(m drivertest.Member) (drivertest.Consumer, error) {
			return newSuiteMember(m)
		},
		Producer: suiteProducer, Code: codeOf,
		Modes: []drivertest.Mode{drivertest.Cooperative, drivertest.Eager, drivertest.ServerSide},
		Lacks: map[string]string{
			"topics/missing_is_told": "franz-go looks for a missing topic without a word",
			"topics/cut_log":         "it is found by the leader epoch of a commit of franz-go's",
		},
	}
}

// The driver keeps what every driver promises.
func TestDriver(t *testing.T) { drivertest.Run(t, suiteDriver()) }

// The driver also keeps it when commits name topics by their names.
func TestDriverByName(t *testing.T) {
	d := suiteDriver()
	d.New = func(m drivertest.Member) (drivertest.Consumer, error) {
		return newSuiteMember(m, byName())
	}
	d.Modes = []drivertest.Mode{drivertest.Cooperative, drivertest.ServerSide}
	d.Rows = "topics/"
	drivertest.Run(t, d)
}
