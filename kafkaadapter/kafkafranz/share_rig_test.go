package kafkafranz

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// shareRig is a rig whose oracle looks at every acknowledgement.
type shareRig struct {
	*rig
	parked     map[string]bool // with no record
	violations []string
	accepted   map[int32]map[int64]bool // by partition and offset
	lock       time.Duration
	messages   int // of a story of renewing
}

// newShareRig has a broker with locks that end after a while, and a limit of deliveries.
func newShareRig(t *testing.T, partitions int32, lock time.Duration, deliveries int) *shareRig {
	t.Helper()
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.SeedTopics(partitions, orders),
		kfake.BrokerConfigs(map[string]string{
			"group.share.record.lock.duration.ms": strconv.FormatInt(lock.Milliseconds(), 10),
			"share.record.lock.sweep.interval.ms": "20",
			"group.share.delivery.count.limit":    strconv.Itoa(deliveries),
			"group.share.heartbeat.interval.ms":   "100",
			"group.share.session.timeout.ms":      "30000",
		}))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cluster.SetGroupConfigs(group, map[string]string{"share.auto.offset.reset": "earliest"})
	r := &shareRig{rig: rigOn(t, cluster), lock: lock, parked: map[string]bool{},
		accepted: map[int32]map[int64]bool{0: {}, 1: {}}}
	r.watch()
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		assert.Empty(t, r.violations, "bad acknowledgements")
	})
	return r
}

// watch checks at the broker that everything accepted has a record in the store, or was
// parked.
func (r *shareRig) watch() {
	r.cluster.ControlKey(int16(kmsg.ShareAcknowledge),
		func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.cluster.KeepControl()
			ack := req.(*kmsg.ShareAcknowledgeRequest)
			if ack.IsRenewAck {
				r.note("renewed")
			}
			for _, topic := range ack.Topics {
				for _, p := range topic.Partitions {
					for _, b := range p.AcknowledgementBatches {
						r.acknowledging(p.Partition, b.FirstOffset, b.LastOffset,
							b.AcknowledgeTypes)
					}
				}
			}
			return nil, nil, false
		})
	r.cluster.ControlKey(int16(kmsg.ShareFetch),
		func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.cluster.KeepControl()
			for _, topic := range req.(*kmsg.ShareFetchRequest).Topics {
				for _, p := range topic.Partitions {
					for _, b := range p.AcknowledgementBatches {
						r.acknowledging(p.Partition, b.FirstOffset, b.LastOffset,
							b.AcknowledgeTypes)
					}
				}
			}
			return nil, nil, false
		})
}

func (r *shareRig) acknowledging(partition int32, first, last int64, types []int8) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := first; at <= last; at++ {
		status := kgo.AckAccept
		switch {
		case len(types) == 1:
			status = kgo.AckStatus(types[0])
		case len(types) > 1:
			status = kgo.AckStatus(types[at-first])
		}
		r.notes[status.String()]++
		if status != kgo.AckAccept {
			if status != kgo.AckRelease && status != kgo.AckRenew {
				r.violations = append(r.violations, fmt.Sprintf("%d@%d: %v", partition, at, status))
			}
			continue
		}
		id := r.log[partition][at]
		if s := r.stateOf(id); !r.parked[id] && s != driver.StateSucceeded &&
			s != driver.StateFailed {
			r.violations = append(r.violations,
				fmt.Sprintf("%d@%d: %s is accepted and %v", partition, at, id, s))
		}
		r.accepted[partition][at] = true
	}
}

// allAccepted waits until every message is accepted, or a lock of renewing has lapsed.
func (r *shareRig) allAccepted() {
	r.t.Helper()
	r.eventually(func() (bool, string) {
		if r.lapsed() {
			return true, ""
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for p, log := range r.log {
			if n := len(r.accepted[p]); n != len(log) {
				return false, fmt.Sprintf("%d of %d are accepted in partition %d", n, len(log), p)
			}
		}
		return true, ""
	})
}

// shareConfig is what a Share is made of.
type shareConfig struct {
	kafkaadapter.Config
	ShareOptions
}

// share starts a member.
func (r *shareRig) share(handle kafkaadapter.Handler, change func(*shareConfig),
	more ...kgo.Opt) *member {
	r.t.Helper()
	m := &member{r: r.rig, line: newLine(), link: &link{Store: r.store}, done: make(chan error, 1)}
	cfg := r.shareConfig(m.link, handle)
	if change != nil {
		change(&cfg)
	}
	s, err := NewShare(group, cfg.Config, cfg.ShareOptions)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	m.cancel = cancel
	go func() {
		m.done <- s.Run(ctx, append([]kgo.Opt{
			kgo.SeedBrokers(r.cluster.ListenAddrs()...), kgo.Dialer(m.line.dial),
			kgo.ConsumeTopics(orders), kgo.FetchMaxWait(50 * time.Millisecond),
		}, more...)...)
		_ = cfg.Deduper.Close(context.WithoutCancel(ctx))
	}()
	r.t.Cleanup(cancel)
	return m
}

func (r *shareRig) shareConfig(l *link, handle kafkaadapter.Handler) shareConfig {
	c := shareConfig{Config: r.config(l, handle)}
	c.Observer = kafkaadapter.Observer{
		Delivered:  func(*kafkaadapter.Message) { r.note("delivered") },
		Skipped:    c.Observer.Skipped,
		Handled:    func(*kafkaadapter.Message, time.Duration, error) { r.note("handled") },
		Waiting:    func(*kafkaadapter.Message) { r.note("waiting") },
		AckRefused: func(string, int32, error) { r.note("refused") },
	}
	return c
}

// renewing runs a story in which every lock is renewed, so that each message is delivered once. If
// the machine is stopped for as long as a lock lasts, the lock lapses, as it should. Then renewing
// runs the story again with longer locks.
func renewing(t *testing.T, deliveries, messages int, story func(t *testing.T, r *shareRig)) {
	t.Helper()
	for lock := time.Second; ; lock *= 4 {
		r := newShareRig(t, 1, lock, deliveries)
		r.messages = messages
		story(t, r)
		if !r.lapsed() {
			return
		}
		if lock > 10*time.Second {
			require.FailNow(t, "a lock lapsed", "with locks of %v, of %d messages: %v", lock,
				messages, r.notes)
		}
		t.Logf("with locks of %v, of %d messages: %v", lock, messages, r.notes)
	}
}

// lapsed reports whether a lock of renewing was not renewed in time: the message arrived again, or
// its acknowledgement was refused.
func (r *shareRig) lapsed() bool {
	return r.messages > 0 && (r.noted("delivered") > r.messages || r.noted("refused") > 0)
}

// park keeps messages, and remembers why.
func (r *shareRig) park(reasons map[string]error) parkFunc {
	return func(_ context.Context, m *kafkaadapter.Message, reason error) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.parked[m.ID] = true
		reasons[m.ID] = reason
		return nil
	}
}

// heal ends the outage that cut began.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = false
}
