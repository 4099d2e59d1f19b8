package kafkasarama

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

const (
	// topicLook is the time between two looks at the topics of a session.
	topicLook = time.Second
	// topicAbsences is how many looks in a row must miss a topic before it is left out: a broker
	// may hear of a new topic later than another one.
	topicAbsences = 2
)

// topicWatch knows which topic a name stands for: one that is deleted and created again has
// another UUID. Kafka forgets a group's offsets with a topic, but a commit names its topic by name
// alone, so a consumer that does not look commits the old watermark into the new topic, or reads
// the new topic from the old one's offset on. It serves all sessions of an adapter.
type topicWatch struct {
	source topicSource
	group  string
	retry  backoff.Policy
	told   func(error)

	mu         sync.Mutex
	subscribed []string          // of Run
	absent     map[string]bool   // left out of the session
	known      map[string]string // UUIDs, as they were pinned last
	successor  map[string]string // UUIDs of topics that replaced another while this process ran
	blind      bool              // that there are no UUIDs was told
}

// topicState is what a name stands for.
type topicState struct {
	uuid   string // empty: not known
	absent bool
}

func newTopicWatch(engine *kafkadriver.Engine, source topicSource) *topicWatch {
	limit := min(engine.Attempts.RetryMax, topicLook)
	return &topicWatch{
		source: source, group: engine.Group(), told: engine.GroupError,
		retry:  backoff.Policy{Base: min(engine.Attempts.RetryBase, limit), Cap: limit},
		absent: make(map[string]bool), known: make(map[string]string),
		successor: make(map[string]string),
	}
}

// look asks what the names stand for. A name that the answer does not tell of is left out.
func (w *topicWatch) look(topics []string) (map[string]topicState, error) {
	answers, err := w.source.Topics(w.group, topics)
	if err != nil {
		return nil, fmt.Errorf("kafkasarama: the topics cannot be looked up: %w", err)
	}
	found := make(map[string]topicState, len(topics))
	for _, answer := range answers {
		switch {
		case answer.Err == sarama.ErrUnknownTopicOrPartition:
			found[answer.Name] = topicState{absent: true}
		case answer.Uuid != sarama.Uuid{}:
			found[answer.Name] = topicState{uuid: answer.Uuid.String()}
		case answer.Err == sarama.ErrNoError:
			found[answer.Name] = topicState{}
		}
	}
	return found, nil
}

// present waits until one of the topics exists, and returns those that do: sarama's Consume would
// fail for all of them when one does not.
func (w *topicWatch) present(ctx context.Context, topics []string) []string {
	w.mu.Lock()
	w.subscribed = topics
	w.mu.Unlock()
	for ctx.Err() == nil {
		found, err := w.look(topics)
		if err != nil {
			return topics // Consume tells
		}
		var there []string
		for _, topic := range topics {
			if w.leaveOut(topic, found[topic].absent); !found[topic].absent {
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

// leaveOut notes whether a topic is left out, and tells of it once.
func (w *topicWatch) leaveOut(topic string, absent bool) {
	w.mu.Lock()
	news := absent && !w.absent[topic]
	w.absent[topic] = absent
	w.mu.Unlock()
	if news {
		w.told(fmt.Errorf("kafkasarama: topic %q is left out until it exists: %w", topic,
			sarama.ErrUnknownTopicOrPartition))
	}
}

// pin notes the UUID of a topic that is assigned.
func (w *topicWatch) pin(topic, uuid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.known[topic]; before != "" && before != uuid {
		w.successor[topic] = uuid
	}
	w.known[topic] = uuid
}

// replaced reports whether the topic with this UUID replaced another while this process ran.
func (w *topicWatch) replaced(topic, uuid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.successor[topic] == uuid
}

// noUUID tells once that a topic has none.
func (w *topicWatch) noUUID(topic string) {
	w.mu.Lock()
	news := !w.blind
	w.blind = true
	w.mu.Unlock()
	if news {
		w.told(fmt.Errorf("kafkasarama: topic %q has no UUID: brokers and sarama.Config.Version must be 2.8 at least; "+
			"stop the group before a topic is deleted and created again, or messages of the new one are skipped", topic))
	}
}

// awaited are the subscribed topics that are left out.
func (w *topicWatch) awaited() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, topic := range w.subscribed {
		if w.absent[topic] {
			all = append(all, topic)
		}
	}
	return all
}

// sessionTopics are the topics of one session, as they were when its partitions were assigned.
type sessionTopics struct {
	*topicWatch
	end     context.CancelCauseFunc // ends the session
	stop    context.CancelFunc      // ends run
	running sync.WaitGroup

	mu     sync.Mutex
	uuids  map[string]string // pinned
	stale  map[string]bool   // another topic has the name: nothing may be committed
	missed map[string]int    // looks in a row that did not find a pinned topic
}

// begin watches the topics of a session until close.
func (w *topicWatch) begin(end context.CancelCauseFunc) *sessionTopics {
	s := &sessionTopics{
		topicWatch: w, end: end,
		uuids: make(map[string]string), stale: make(map[string]bool), missed: make(map[string]int),
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.running.Go(func() { s.run(ctx) })
	return s
}

func (s *sessionTopics) close() {
	s.stop()
	s.running.Wait()
}

// run looks at the topics now and then. What cannot be looked up is looked up again: until then
// the commits, which look for themselves, wait.
func (s *sessionTopics) run(ctx context.Context) {
	for backoff.Sleep(ctx, topicLook) == nil {
		awaited := s.awaited()
		topics := append(s.pinned(), awaited...)
		if len(topics) == 0 {
			continue
		}
		found, err := s.look(topics)
		if err != nil {
			continue
		}
		s.compare(found)
		s.count(found)
		for _, topic := range awaited {
			if state, ok := found[topic]; ok && !state.absent {
				s.end(fmt.Errorf("kafkasarama: topic %q exists", topic))
			}
		}
	}
}

func (s *sessionTopics) pinned() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.uuids))
}

// compare ends the session when a name stands for another topic.
func (s *sessionTopics) compare(found map[string]topicState) {
	for topic, state := range found {
		s.mu.Lock()
		pinned := s.uuids[topic]
		changed := pinned != "" && state.uuid != "" && state.uuid != pinned && !s.stale[topic]
		if changed {
			s.stale[topic] = true
		}
		s.mu.Unlock()
		if changed {
			s.recreated(topic, fmt.Errorf("its UUID was %s and is %s", pinned, state.uuid))
		}
	}
}

func (s *sessionTopics) recreated(topic string, how error) {
	err := fmt.Errorf("%w: %q: %w; it is read from its start", kafkaadapter.ErrTopicRecreated, topic, how)
	s.told(err)
	s.end(err)
}

// count ends the session when a topic is gone: the next one leaves it out.
func (s *sessionTopics) count(found map[string]topicState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic := range s.uuids {
		state, ok := found[topic]
		switch {
		case ok && state.absent:
			s.missed[topic]++
		case ok:
			s.missed[topic] = 0
		}
		if s.missed[topic] == topicAbsences {
			s.end(fmt.Errorf("kafkasarama: topic %q: %w", topic,
				sarama.ErrUnknownTopicOrPartition))
		}
	}
}

// mayCommit looks at topics right before a commit. False: the name stands for no topic, for
// another one, or nobody knows. What is not committed is committed by a later round, or, where the
// topic is another one, never.
//
// The look and the commit are two requests on one connection, and a topic that is replaced between
// them is not seen. The commit says which topic it belongs to in its metadata, so whoever is
// assigned the partition next sees it (claimed).
func (s *sessionTopics) mayCommit(topics []string) (map[string]bool, error) {
	found, err := s.look(topics)
	if err != nil {
		return nil, err
	}
	s.compare(found)
	s.mu.Lock()
	defer s.mu.Unlock()
	may := make(map[string]bool, len(topics))
	for _, topic := range topics {
		state, ok := found[topic]
		may[topic] = ok && !state.absent && !s.stale[topic]
	}
	return may, nil
}

// isStale reports whether the name stands for another topic by now.
func (s *sessionTopics) isStale(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stale[topic]
}

// uuid is that of the topic when it was assigned, empty when it is not known.
func (s *sessionTopics) uuid(topic string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uuids[topic]
}
