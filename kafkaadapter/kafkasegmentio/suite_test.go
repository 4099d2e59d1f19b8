package kafkasegmentio

import (
	"errors"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver/drivertest"
)

func suiteMember(m drivertest.Member) (drivertest.Consumer, error) {
	return New(m.Brokers, m.Group, m.Topics, Options{Transport: &kafka.Transport{Dial: m.Dial},
		SessionTimeout: m.Session, HeartbeatInterval: 100 * time.Millisecond,
		RebalanceTimeout: m.Rebalance, FetchBytes: m.FetchBytes}, m.Config)
}

func suiteProducer(t testing.TB, addrs []string, limit int) kafkaadapter.Producer {
	t.Helper()
	w := &kafka.Writer{Addr: kafka.TCP(addrs...), RequiredAcks: kafka.RequireAll,
		BatchTimeout: time.Millisecond, MaxAttempts: 2, WriteTimeout: 5 * time.Second,
		BatchBytes: int64(limit), Transport: &kafka.Transport{}}
	t.Cleanup(func() { _ = w.Close() })
	p, err := Producer(w)
	require.NoError(t, err)
	return p
}

// codeOf is the protocol's error code in an error of the client.
func codeOf(err error) int16 {
	var code kafka.Error
	if errors.As(err, &code) {
		return int16(code)
	}
	return 0
}

// The driver keeps what every driver promises.
func TestDriver(t *testing.T) {
	drivertest.Run(t, drivertest.Driver{
		Cluster: func(t testing.TB) drivertest.Cluster { return newBrokers(t) },
		New:     suiteMember, Producer: suiteProducer, Code: codeOf,
		Modes: []drivertest.Mode{drivertest.Eager},
		Lacks: map[string]string{
			"commits/fenced/FENCED_MEMBER_EPOCH": "kafka-go does not have KIP-848",
			"members/instance":                   "kafka-go has no static members",
		},
	})
}
