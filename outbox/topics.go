package outbox

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// leastPatience is the shortest time that a batch waits for its calls. Usually it waits
	// patienceFactor times as long as calls usually take. Then it continues without the calls that
	// still run.
	leastPatience  = 100 * time.Millisecond
	patienceFactor = 4
	// probePatience is how long a batch waits for a probe, whose topic is likely to fail again. It
	// also holds for calls of a topic that has acknowledged nothing yet: the topic may not exist,
	// and everything else in the shard would wait with it.
	probePatience = 10 * time.Millisecond
	// maxKnown is how many topics with an acknowledged message are remembered.
	maxKnown = 10_000
	// maxFailing is how many topics are left out of the reads at once. When more fail, the reason
	// is the broker.
	maxFailing = 100
)

// FailingTopic is a topic of which a relay sends only one message now and then, because its
// messages fail or take far longer than those of other topics. See [Relay.Failing].
type FailingTopic struct {
	Topic string
	// Since is when its first call failed, or was found to be slow.
	Since time.Time
	// Failures counts the calls in a row that acknowledged nothing. It is zero while the first one
	// has not returned.
	Failures int
	// Err is the last error; nil when no call has failed yet.
	Err error
}

// TopicError is given to RelayConfig.OnError when a call of the publisher has returned, or was
// given up, and none of its messages was acknowledged. All of them are of one topic.
type TopicError struct {
	Topic string
	// Failures counts such calls of the topic in a row, this one included.
	Failures int
	// Messages is how many messages the call had.
	Messages int
	// Delay is the time until the relay tries one message of the topic again.
	Delay time.Duration
	// Err is the error of the first of its messages.
	Err error
}

// Error names the topic, and says when it is tried again.
func (e *TopicError) Error() string {
	return fmt.Sprintf("outbox: none of %d messages to topic %q was acknowledged, %d calls in a row; the next try is in %v: %v",
		e.Messages, e.Topic, e.Failures, e.Delay, e.Err)
}

// Unwrap returns Err.
func (e *TopicError) Unwrap() error { return e.Err }

// topics is the circuit breaker of a relay: it has the topics that the relay leaves out of its
// reads, in all shards. When a topic's delay is over the relay sends a probe, which is one message.
// Probes go through the shards that are known to have messages of the topic, and through all shards
// when those have none to send. This state is only in memory: after a restart the relay finds out
// again, and so does any other relay.
type topics struct {
	retry  func(failures int) time.Duration
	shards int

	mu    sync.Mutex
	out   map[string]*failing
	known map[string]struct{} // topics whose last call was acknowledged
	usual time.Duration       // of calls that were acknowledged
	epoch int                 // counts the topics that have come back
}

// failing is the state of one topic that is left out.
type failing struct {
	since    time.Time
	failures int
	err      error
	calls    int       // that are slow, were abandoned, or are probes
	until    time.Time // no probe before
	shard    int       // of the next probe
	known    uint32    // shards in which a call of it has failed, one bit each
	missing  int       // shards in a row that had no message of it
}

func newTopics(cfg *RelayConfig, shards int) *topics {
	return &topics{
		retry:  func(failures int) time.Duration { return cfg.retry().Delay(failures, 0, nil) },
		shards: shards, out: map[string]*failing{}, known: map[string]struct{}{},
	}
}

// Failing returns the topics that this relay leaves out at the moment, except for one message now
// and then. They are at most a hundred, in the order of their names. It does not ask the database
// and may be called at any time.
func (r *Relay) Failing() []FailingTopic {
	if r == nil || r.topics == nil {
		return nil
	}
	t := r.topics
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]FailingTopic, 0, len(t.out))
	for name, f := range t.out {
		all = append(all, FailingTopic{Topic: name, Since: f.since, Failures: f.failures,
			Err: f.err})
	}
	slices.SortFunc(all, func(a, b FailingTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return all
}

// names returns the topics to be left out, and the epoch of that list.
func (t *topics) names() ([]string, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]string, 0, len(t.out))
	for name := range t.out {
		all = append(all, name)
	}
	slices.Sort(all)
	return all, t.epoch
}

func (t *topics) isOut(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out[topic] != nil
}

func (t *topics) now() (epoch int, failing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch, len(t.out) > 0
}

// patience is how long a batch waits for its calls.
func (t *topics) patience() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(leastPatience, patienceFactor*t.usual)
}

// isKnown reports whether the last ended call of a topic has acknowledged something.
func (t *topics) isKnown(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.known[topic]
	return known
}

// slow leaves a topic out while one of its calls takes longer than others do. It returns the state
// in which the call counts; nil when too many topics are left out already.
func (t *topics) slow(topic string, shard int) *failing {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.leave(topic, shard)
	if f != nil {
		f.calls++
	}
	return f
}

// leave leaves a topic out. It returns nil when too many are left out already.
func (t *topics) leave(topic string, shard int) *failing {
	f := t.out[topic]
	if f == nil && len(t.out) < maxFailing {
		f = &failing{since: time.Now(), shard: shard}
		t.out[topic] = f
	}
	return f
}

// due takes the probes whose time has come and that are next in this shard. Each counts as a call.
func (t *topics) due(shard int) map[string]*failing {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	var all map[string]*failing
	for name, f := range t.out {
		if f.shard != shard || f.calls > 0 || now.Before(f.until) {
			continue
		}
		f.calls++
		if all == nil {
			all = map[string]*failing{}
		}
		all[name] = f
	}
	return all
}

// next returns the shards that have a probe to make now, and when the next probe is due; zero for
// none.
func (t *topics) next() (shards []int, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, f := range t.out {
		switch {
		case f.calls > 0:
		case !now.Before(f.until):
			shards = append(shards, f.shard)
		case at.IsZero() || f.until.Before(at):
			at = f.until
		}
	}
	return shards, at
}

// skipped ends a probe that was not made, because this shard has nothing to send for now. A topic
// that has no message in any shard is no longer left out.
func (t *topics) skipped(topic string, f *failing, missing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.calls--
	if missing {
		f.known &^= 1 << f.shard
	}
	f.shard = t.after(f.shard)
	if !missing {
		f.missing = 0
		f.until = time.Now().Add(t.retry(f.failures))
		return
	}
	if f.missing++; f.missing >= t.shards && f.calls == 0 && t.out[topic] == f {
		t.back(topic)
	}
}

// skipShard moves the probes of a shard to the next shard, because another relay has this one.
func (t *topics) skipShard(shard int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, f := range t.out {
		if f.shard == shard && f.calls == 0 && !now.Before(f.until) {
			f.shard = t.after(shard)
			f.until = now.Add(probePatience)
		}
	}
}

// postponed ends a probe that could not be made; it is due again after a delay.
func (t *topics) postponed(f *failing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.calls--
	f.until = time.Now().Add(t.retry(f.failures))
}

// after is the next shard.
func (t *topics) after(shard int) int { return (shard + 1) % t.shards }

func (t *topics) back(topic string) {
	delete(t.out, topic)
	t.epoch++
}

// succeeded ends the failures of a topic: something of it was acknowledged.
func (t *topics) succeeded(topic string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.usual == 0 {
		t.usual = took
	}
	t.usual += (took - t.usual) / 8
	if len(t.known) >= maxKnown {
		clear(t.known)
	}
	t.known[topic] = struct{}{}
	if t.out[topic] != nil {
		t.back(topic)
	}
}

// failed leaves a topic out after a call that has acknowledged nothing, until it is probed.
func (t *topics) failed(topic string, shard int, err error) (failures int, delay time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, topic)
	f := t.leave(topic, shard)
	if f == nil {
		return 1, t.retry(maxFailing) // as rarely as anything
	}
	delay = t.retry(f.failures)
	f.failures++
	f.err, f.missing = err, 0
	f.until = time.Now().Add(delay)
	f.known |= 1 << shard
	for f.shard = t.after(shard); f.known&(1<<f.shard) == 0; {
		f.shard = t.after(f.shard)
	}
	return f.failures, delay
}

// undecided ends a call that says nothing about its topic: each of its messages was rejected, or
// had failed before.
func (t *topics) undecided(topic string, shard int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.out[topic]
	switch {
	case f == nil:
	case f.failures == 0 && f.calls == 0:
		t.back(topic)
	default:
		f.missing = 0
		f.until = time.Now().Add(t.retry(f.failures))
		f.shard = t.after(shard)
	}
}

// returned ends a call that was counted in f.
func (t *topics) returned(f *failing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.calls--
}
