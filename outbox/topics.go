package outbox

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// leastPatience is how long a batch waits at the least for the calls of all its topics. It
	// continues without those that take longer, and than four times as long as calls usually take.
	leastPatience  = 100 * time.Millisecond
	patienceFactor = 4
	// probePatience is how long a batch waits for a probe, whose topic is likely to fail again. It
	// is also for the calls of a topic that has acknowledged nothing yet: the topic may not exist,
	// and all else in the shard would wait with it.
	probePatience = 10 * time.Millisecond
	// maxKnown is how many topics that have acknowledged something are remembered.
	maxKnown = 10_000
	// maxFailing is how many topics are left out of the reads at once. When more fail, it is the
	// broker.
	maxFailing = 100
)

// FailingTopic is a topic of which a relay sends one message now and then, and no others, because
// its messages fail or take far longer than those of other topics. See [Relay.Failing].
type FailingTopic struct {
	Topic string
	// Since is when its first call failed, or was found to take long.
	Since time.Time
	// Failures counts the calls in a row of which nothing was acknowledged. Zero: the first one has
	// not returned yet.
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
	// Messages that the call had.
	Messages int
	// Delay until one message of the topic is tried again.
	Delay time.Duration
	// Err is the error of the first of them.
	Err error
}

// Error names the topic, and says when it is tried again.
func (e *TopicError) Error() string {
	return fmt.Sprintf("outbox: none of %d messages to topic %q was acknowledged, %d calls in a row; the next try is in %v: %v",
		e.Messages, e.Topic, e.Failures, e.Delay, e.Err)
}

// Unwrap returns Err.
func (e *TopicError) Unwrap() error { return e.Err }

// topics is the circuit breaker of a relay: which topics are left out of what it reads, in all
// shards. Each has a probe when its delay is over: one message, from one shard after the other of
// those that are known to have some, and from all when those have none to send. It is kept in
// memory alone. Another relay, and this one after a restart, finds out by itself.
type topics struct {
	retry  func(failures int) time.Duration
	shards int

	mu    sync.Mutex
	out   map[string]*failing
	known map[string]struct{} // topics whose last call was acknowledged
	usual time.Duration       // of calls that were acknowledged
	epoch int                 // counts the topics that have come back
}

// failing is what is known of one topic that is left out.
type failing struct {
	since    time.Time
	failures int
	err      error
	calls    int       // that take long, were left behind, or are probes
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

// Failing returns the topics that this relay leaves out at the moment, but for one message now and
// then, at most a hundred, in the order of their names. It asks nobody and may be called at any
// time.
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

// isKnown reports whether the last call of a topic that has ended acknowledged something.
func (t *topics) isKnown(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.known[topic]
	return known
}

// slow leaves a topic out while a call of it takes longer than others do. It returns what
// counts the call; nil when too many topics are left out already.
func (t *topics) slow(topic string, shard int) *failing {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.leave(topic, shard)
	if f != nil {
		f.calls++
	}
	return f
}

// leave returns nil when too many are left out already.
func (t *topics) leave(topic string, shard int) *failing {
	f := t.out[topic]
	if f == nil && len(t.out) < maxFailing {
		f = &failing{since: time.Now(), shard: shard}
		t.out[topic] = f
	}
	return f
}

// due takes the probes whose time has come, and whose turn it is in this shard. Each counts as a
// call.
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

// next returns the shards that have a probe to make now, and when there is another; zero for none.
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

// skipped ends a probe that was not made: in this shard, for now, there is nothing to send. A topic
// that has no message in any shard is not left out any longer.
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

// skipShard has the probes of a shard that another relay has made in the next one.
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

// postponed ends a probe that could not be made, because the database has failed.
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

// failed leaves a topic out, of which a call has acknowledged nothing, until it is probed.
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

// undecided is a call that says nothing about its topic: each of its messages was rejected, or has
// failed by itself before.
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

// returned ends a call that was counted.
func (t *topics) returned(f *failing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.calls--
}
