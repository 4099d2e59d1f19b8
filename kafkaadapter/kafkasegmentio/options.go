package kafkasegmentio

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/onceward/onceward/dedup"
)

// Options of a consumer. Zero values are defaults.
type Options struct {
	// Transport says how to reach the brokers. The consumer uses its Dial, DialTimeout,
	// IdleTimeout, ClientID, TLS and SASL for connections of its own. Its Resolver must be nil.
	// Default: connections without TLS and SASL.
	Transport *kafka.Transport
	// Balancers assign partitions to members. The group uses the first one that all members have.
	// Default: kafka-go's range and round robin.
	Balancers []kafka.GroupBalancer
	// SessionTimeout is how long a member may be silent before the others get its partitions.
	// Default 45 s.
	SessionTimeout time.Duration
	// HeartbeatInterval is the time between two heartbeats, below SessionTimeout. Their answers
	// report a rebalance. Default 3 s.
	HeartbeatInterval time.Duration
	// RebalanceTimeout is how long a rebalance waits for members that still drain their partitions.
	// It must be at least [kafkaadapter.Tuning].Drain plus 3 s, with Own plus 4 s. Default 60 s.
	RebalanceTimeout time.Duration
	// FetchBytes bounds one answer to a fetch of a partition, in bytes; a larger message comes
	// alone. Default 1 MiB.
	FetchBytes int
}

func (c *Consumer) setDefaults() {
	o := &c.opts
	o.Transport = cmp.Or(o.Transport, &kafka.Transport{})
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 45*time.Second)
	o.HeartbeatInterval = cmp.Or(o.HeartbeatInterval, 3*time.Second)
	o.RebalanceTimeout = cmp.Or(o.RebalanceTimeout, time.Minute)
	o.FetchBytes = cmp.Or(o.FetchBytes, 1<<20)
}

// check returns an [*dedup.InputError] that names the first bad argument.
func (c *Consumer) check() error {
	bad := func(field, format string, args ...any) error {
		return &dedup.InputError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	o := &c.opts
	for field, d := range map[string]time.Duration{"Options.SessionTimeout": o.SessionTimeout,
		"Options.HeartbeatInterval": o.HeartbeatInterval,
		"Options.RebalanceTimeout":  o.RebalanceTimeout} {
		if d < time.Millisecond || d.Milliseconds() > math.MaxInt32 {
			return bad(field, "is %v, and must be from a millisecond to 24 days", d)
		}
	}
	switch drain := c.engine.Tuning.Drain; {
	case len(c.brokers) == 0, slices.Contains(c.brokers, ""):
		return bad("brokers", "is empty, or has an empty address")
	case len(c.topics) == 0, slices.Contains(c.topics, ""):
		return bad("topics", "is empty, or has an empty name")
	case o.Transport.Resolver != nil:
		return bad("Options.Transport.Resolver",
			"is set: the connections of group members do not use it; set Dial instead")
	case slices.Contains(o.Balancers, nil):
		return bad("Options.Balancers", "has one that is nil")
	case o.HeartbeatInterval >= o.SessionTimeout:
		return bad("Options.HeartbeatInterval", "is %v, not below SessionTimeout (%v)",
			o.HeartbeatInterval, o.SessionTimeout)
	case drain > o.RebalanceTimeout-c.engine.Handover():
		return bad("Options.RebalanceTimeout",
			"is %v, less than kafkaadapter.Tuning.Drain (%v) and %v: the partition would be given away while handlers run",
			o.RebalanceTimeout, drain, c.engine.Handover())
	case o.FetchBytes < 0 || o.FetchBytes > math.MaxInt32/2:
		return bad("Options.FetchBytes", "is %d, and must be from 1 to a GiB", o.FetchBytes)
	}
	return nil
}
