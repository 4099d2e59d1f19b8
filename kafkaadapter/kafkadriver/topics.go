package kafkadriver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

const (
	// atEnd is the initial offset of a partition that a client would read from its end.
	atEnd = -1
	// lookPatience bounds one look.
	lookPatience = 5 * time.Second
	// topicLook is the time between two looks at the topics of a session.
	topicLook = time.Second
	// topicAbsences is how many looks in a row must miss a topic before it is left out: one broker
	// may hear of a new topic later than another one.
	topicAbsences = 2
)

// Topics knows which topic a name stands for: a topic that is deleted and created again has another
// UUID. Kafka deletes a group's offsets with a topic, but a commit identifies its topic by name
// alone. So a consumer that does not check commits the old watermark into the new topic, or reads
// the new topic from the old one's offset on. One Topics serves all sessions of an adapter.
type Topics struct {
	source TopicSource
	report func(error)
	pause  func(failures int) time.Duration
	window time.Duration // of the records; 0: not known

	mu         sync.Mutex
	subscribed []string          // of Run
	known      map[string]string // UUIDs, as they were pinned last
	successor  map[string]string // UUIDs of topics that replaced others in this process

	absent  set[string]         // left out of the session
	blind   atomic.Bool         // it was reported that there are no UUIDs
	refused set[TopicPartition] // with an offset that is out of range
}

// TopicState says which topic a name stands for.
type TopicState struct {
	// UUID is the topic's, as Kafka's tools write it. Empty: not known.
	UUID string
	// Absent is the client's error that the topic does not exist, or nil if it exists.
	Absent error
}

// TopicSource asks the brokers about topics, through a client. A client without contexts ignores
// ctx, and gives up by itself.
type TopicSource interface {
	// Topics returns the states of the names; a name that it does not know is left out. It must not
	// create a topic. If possible, ask the group's coordinator, because it compares a commit with
	// the topics that it knows.
	Topics(ctx context.Context, topics []string) (map[string]TopicState, error)
	// Committed is the group's offset of a partition, -1 for none, and its metadata.
	Committed(ctx context.Context, topic string, partition int32) (offset int64, metadata string,
		err error)
	// Bounds returns the first offset of a partition's log and the one after its last message, even
	// while a transaction is open.
	Bounds(ctx context.Context, topic string, partition int32) (oldest, end int64, err error)
	// Since is the offset of the first message with this timestamp or a later one, -1 for none.
	Since(ctx context.Context, topic string, partition int32, at time.Time) (int64, error)
}

// NewTopics returns the topics of a consumer.
func (e *Engine) NewTopics(source TopicSource) *Topics {
	w := &Topics{
		source: source, report: e.GroupError,
		pause: func(failures int) time.Duration { return e.Pause(failures, topicLook) },
		known: make(map[string]string), successor: make(map[string]string),
	}
	if e.Deduper != nil {
		w.window = e.Deduper.Config().Window
	}
	return w
}

// look asks which topics the names stand for.
func (w *Topics) look(ctx context.Context, topics []string) (map[string]TopicState, error) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	found, err := w.source.Topics(ctx, topics)
	if err != nil {
		return nil, fmt.Errorf("kafkaadapter: the topics cannot be looked up: %w", err)
	}
	return found, nil
}

// Present waits until one of the topics exists, and returns those that exist: sarama's Consume
// would fail for all of them if one does not.
func (w *Topics) Present(ctx context.Context, topics []string) []string {
	w.mu.Lock()
	w.subscribed = topics
	w.mu.Unlock()
	for ctx.Err() == nil {
		found, err := w.look(ctx, topics)
		if err != nil {
			return topics // Consume reports the error
		}
		var there []string
		for _, topic := range topics {
			if w.leaveOut(topic, found[topic].Absent); found[topic].Absent == nil {
				there = append(there, topic)
			}
		}
		if len(there) > 0 {
			return there
		}
		_ = backoff.Sleep(ctx, topicLook)
	}
	return topics
}

// leaveOut notes whether a topic is left out, and reports it once.
func (w *Topics) leaveOut(topic string, absent error) {
	if absent == nil {
		w.absent.remove(topic)
	} else if w.absent.add(topic) {
		w.report(fmt.Errorf("kafkaadapter: topic %q is left out until it exists: %w", topic,
			absent))
	}
}

// pin notes the UUID of a topic that is assigned.
func (w *Topics) pin(topic, uuid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.known[topic]; before != "" && before != uuid {
		w.successor[topic] = uuid
	}
	w.known[topic] = uuid
}

// replaced reports whether the topic with this UUID replaced another while this process ran.
func (w *Topics) replaced(topic, uuid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.successor[topic] == uuid
}

// noUUID reports once that a topic has no UUID.
func (w *Topics) noUUID(topic string) {
	if w.blind.CompareAndSwap(false, true) {
		w.report(fmt.Errorf("kafkaadapter: topic %q has no UUID: brokers, and the version that the client speaks, must be 2.8 at least; "+
			"stop the group before a topic is deleted and created again, or messages of the new one are skipped", topic))
	}
}

// awaited are the subscribed topics that are left out.
func (w *Topics) awaited() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.subscribed), func(topic string) bool {
		return !w.absent.has(topic)
	})
}

// SessionTopics are the topics of one session, as they were when its partitions were assigned.
type SessionTopics struct {
	all     *Topics
	end     context.CancelCauseFunc // ends the session
	stop    context.CancelFunc      // ends run
	running sync.WaitGroup

	mu     sync.Mutex
	uuids  map[string]string // pinned
	stale  set[string]       // another topic has the name: nothing may be committed
	missed map[string]int    // looks in a row that did not find a pinned topic
}

// Begin watches the topics of a session until Close. end is called to end the session.
func (w *Topics) Begin(end context.CancelCauseFunc) *SessionTopics {
	s := &SessionTopics{
		all: w, end: end,
		uuids: make(map[string]string), missed: make(map[string]int),
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.running.Go(func() { s.run(ctx) })
	return s
}

// Close ends the watch, and waits until the last look has ended.
func (s *SessionTopics) Close() {
	s.stop()
	s.running.Wait()
}

// run looks at the topics every topicLook. After a failed look it looks again. Commits do not rely
// on these looks: each commit looks itself, and waits until its look succeeds.
func (s *SessionTopics) run(ctx context.Context) {
	for backoff.Sleep(ctx, topicLook) == nil {
		awaited := s.all.awaited()
		topics := append(s.pinned(), awaited...)
		if len(topics) == 0 {
			continue
		}
		found, err := s.all.look(ctx, topics)
		if err != nil {
			continue
		}
		s.compare(found)
		s.count(found)
		for _, topic := range awaited {
			if state, ok := found[topic]; ok && state.Absent == nil {
				s.end(fmt.Errorf("kafkaadapter: topic %q exists", topic))
			}
		}
	}
}

func (s *SessionTopics) pinned() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.uuids))
}

// compare ends the session when a name stands for another topic.
func (s *SessionTopics) compare(found map[string]TopicState) {
	for topic, state := range found {
		pinned := s.UUID(topic)
		if pinned != "" && state.UUID != "" && state.UUID != pinned && s.stale.add(topic) {
			s.recreated(topic, fmt.Errorf("its UUID was %s and is %s", pinned, state.UUID))
		}
	}
}

func absentError(topic string, absent error) error {
	return fmt.Errorf("kafkaadapter: topic %q: %w", topic, absent)
}

func (s *SessionTopics) recreated(topic string, how error) {
	err := fmt.Errorf("%w: %q: %w; it is read from its start", kafkaadapter.ErrTopicRecreated,
		topic, how)
	s.all.report(err)
	s.end(err)
}

// count ends the session when a topic is gone; the next session leaves the topic out.
func (s *SessionTopics) count(found map[string]TopicState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic := range s.uuids {
		state, ok := found[topic]
		switch {
		case ok && state.Absent != nil:
			s.missed[topic]++
		case ok:
			s.missed[topic] = 0
		}
		if s.missed[topic] == topicAbsences {
			s.end(absentError(topic, state.Absent))
		}
	}
}

// mayCommit checks topics right before a commit. It reports false for a name that stands for no
// topic or for another one, or if nobody knows. An offset that is left out is committed in a later
// round, or never if the topic is another one.
//
// The check and the commit are two requests on one connection: a topic that is replaced between
// them is not noticed. The metadata of the commit says which topic it belongs to, so the next
// member that is assigned the partition notices it (Claimed).
func (s *SessionTopics) mayCommit(ctx context.Context, topics []string) (map[string]bool, error) {
	found, err := s.all.look(ctx, topics)
	if err != nil {
		return nil, err
	}
	s.compare(found)
	may := make(map[string]bool, len(topics))
	for _, topic := range topics {
		state, ok := found[topic]
		may[topic] = ok && state.Absent == nil && !s.stale.has(topic)
	}
	return may, nil
}

// UUID is the topic's UUID when it was assigned, empty when it is not known.
func (s *SessionTopics) UUID(topic string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uuids[topic]
}
