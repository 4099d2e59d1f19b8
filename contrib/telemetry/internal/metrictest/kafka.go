package metrictest

import (
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/onceward/onceward/kafkaadapter"
)

// Client is a Kafka consumer that package kafkametric measures under [Name].
type Client struct {
	// These are the client's hooks. A call of a hook stands for one message or one event.
	// AckRefused is nil if the client has no share groups.
	MissingID, Waiting, Unrecorded func()
	Delayed, Parked                func()
	CommitFailed, AckRefused       func()
	Handled                        func(error)
	Revoked                        func(returned, abandoned int)

	Observe        func(progress func() []kafkaadapter.Progress) error
	ObserveNothing func() error
	Close          func() error
}

const kafkaPrefix = "onceward.kafka."

// Kafka checks the series of a client's hooks and its progress. The parameter start returns a
// client with series of its own, and a function that collects them. The parameter construct is the
// package's New.
func Kafka(t *testing.T, start func(*testing.T) (*Client, func() map[string]float64),
	construct func(metric.MeterProvider, string) error) {
	t.Run("hooks", func(t *testing.T) {
		client, collect := start(t)
		client.hooks(t, collect)
	})
	t.Run("progress", func(t *testing.T) {
		client, collect := start(t)
		client.progress(t, collect)
	})
	t.Run("closed", func(t *testing.T) {
		client, collect := start(t)
		client.closed(t, collect)
	})
	t.Run("refused", func(t *testing.T) {
		if construct(nil, "x") == nil {
			t.Error("a nil provider is accepted")
		}
		if construct(noop.NewMeterProvider(), "") == nil {
			t.Error("an empty name is accepted")
		}
	})
}

// of returns the series with Kafka's prefix before their names.
func of(series map[string]float64) map[string]float64 {
	all := make(map[string]float64, len(series))
	for name, value := range series {
		all[kafkaPrefix+name] = value
	}
	return all
}

func (c *Client) hooks(t *testing.T, collect func() map[string]float64) {
	got := collect()
	for _, rare := range []string{"delayed", "parked", "unrecorded", "missing_id",
		"commit.failures", "ack.refused", "abandoned"} {
		if value, is := got[kafkaPrefix+rare]; !is || value != 0 {
			t.Errorf("%s does not begin at 0", rare)
		}
	}
	want := map[string]float64{
		"missing_id": 1, "handled{kafka.failed=false}": 2, "handled{kafka.failed=true}": 1,
		"waiting": 4, "unrecorded": 2, "delayed": 7, "parked": 5, "commit.failures": 6,
		"abandoned": 3,
	}
	failed := errors.New("down")
	for _, err := range []error{nil, nil, failed} {
		c.Handled(err)
	}
	c.Revoked(2, 3)
	for name, hook := range map[string]func(){
		"missing_id": c.MissingID, "waiting": c.Waiting, "unrecorded": c.Unrecorded,
		"delayed": c.Delayed, "parked": c.Parked, "commit.failures": c.CommitFailed,
	} {
		for range int(want[name]) {
			hook()
		}
	}
	if c.AckRefused != nil {
		want["ack.refused"] = 1
		c.AckRefused()
	}
	Want(t, collect(), kafkaPrefix, of(want))
}

func (c *Client) progress(t *testing.T, collect func() map[string]float64) {
	var now []kafkaadapter.Progress
	if err := c.Observe(func() []kafkaadapter.Progress { return now }); err != nil {
		t.Fatal(err)
	}
	Want(t, collect(), kafkaPrefix,
		of(map[string]float64{"partitions": 0, "age": 0, "lag": 0, "in_flight": 0,
			"paused{kafka.pause=backlog}": 0}))
	now = []kafkaadapter.Progress{
		{Lag: 10, InFlight: 3, Age: time.Minute, Backlogged: true, StoreDown: true},
		{Lag: -1, InFlight: 4, Age: time.Second, StoreDown: true, NotOwned: true},
		{Lag: 5, StoreDown: true, NotOwned: true},
	}
	Want(t, collect(), kafkaPrefix, of(map[string]float64{
		"partitions": 3, "age": 60, "lag": 15, "in_flight": 7,
		"paused{kafka.pause=backlog}": 1, "paused{kafka.pause=store}": 3,
		"paused{kafka.pause=not_owned}": 2,
	}))
	if c.ObserveNothing() == nil {
		t.Error("a nil function is accepted")
	}
	if c.Observe(nil) == nil {
		t.Error("a second observation is accepted")
	}
}

// closed checks that after Close hooks still count, and nothing is observed any more.
func (c *Client) closed(t *testing.T, collect func() map[string]float64) {
	if err := c.Observe(func() []kafkaadapter.Progress {
		return []kafkaadapter.Progress{{Age: time.Minute}}
	}); err != nil {
		t.Fatal(err)
	}
	Want(t, collect(), kafkaPrefix, of(map[string]float64{"partitions": 1, "age": 60}))
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.Parked()
	got := collect()
	Want(t, got, kafkaPrefix, of(map[string]float64{"parked": 1}))
	if _, is := got[kafkaPrefix+"age"]; is {
		t.Error("after Close it is observed")
	}
	if c.Observe(func() []kafkaadapter.Progress { return nil }) == nil {
		t.Error("an observation after Close is accepted")
	}
}
