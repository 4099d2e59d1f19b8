package kafkasarama

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// fakeCoordinator is the groupClient of a fakeGroup, which it commits to.
type fakeCoordinator struct {
	group  *fakeGroup
	config *sarama.Config
	more   int32 // partitions of the topic that nobody here is assigned

	mu       sync.Mutex
	onCommit func() // called by each commit before anything else
	// of the next requests: a sarama.KError is the answer, another error fails the request
	answers  []error
	forever  error // of all others
	apply    bool  // a commit that gets an error is made anyway
	requests []*sarama.OffsetCommitRequest
	lookUps  []bool

	topic fakeTopic
}

func newFakeCoordinator(group *fakeGroup) *fakeCoordinator {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	return &fakeCoordinator{group: group, config: config}
}

// Config implements groupClient.
func (f *fakeCoordinator) Config() *sarama.Config { return f.config }

// Count implements groupClient.
func (f *fakeCoordinator) Count(context.Context, string) (int32, error) {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	return int32(len(f.group.log)) + f.more, nil
}

// Commit implements groupClient.
func (f *fakeCoordinator) Commit(r *sarama.OffsetCommitRequest,
	lookUp bool) (*sarama.OffsetCommitResponse, error) {
	f.mu.Lock()
	onCommit := f.onCommit
	f.mu.Unlock()
	if onCommit != nil {
		onCommit()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests, f.lookUps = append(f.requests, r), append(f.lookUps, lookUp)
	answer := f.forever
	if len(f.answers) > 0 {
		answer, f.answers = f.answers[0], f.answers[1:]
	}
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	apply := answer == nil || f.apply
	if s := f.group.session; s != nil && (s.over || s.generation != r.ConsumerGroupGeneration) {
		answer, apply = sarama.ErrIllegalGeneration, false
	}
	f.group.fenced = isFencing(answer)
	code, answered := answer.(sarama.KError) //nolint:errorlint // as it comes
	response := &sarama.OffsetCommitResponse{}
	for partition := range f.group.log {
		next, metadata, err := r.Offset(topic, partition)
		if err != nil {
			continue
		}
		if apply {
			f.group.take(partition, next)
			f.topic.stamp(partition, metadata)
		}
		response.AddError(topic, partition, code)
	}
	if answer != nil && !answered {
		return nil, answer
	}
	return response, nil
}

func (f *fakeCoordinator) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// refuse has the next n commits fail.
func (f *fakeCoordinator) refuse(n int, answer error) {
	f.set(func() { f.answers = slices.Repeat([]error{answer}, n) })
}

func (f *fakeCoordinator) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
}

// fakeTopic is what a fakeCoordinator knows of its topic.
type fakeTopic struct {
	mu        sync.Mutex
	recreated byte             // how often
	absent    bool             // it is deleted
	noUUID    bool             // the brokers are old
	broken    bool             // nobody answers
	onLook    func()           // called after each look, before its answer arrives
	before    func()           // called before each look
	metadata  map[int32]string // of the commits
}

func (f *fakeTopic) set(change func(*fakeTopic)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeTopic) uuid() sarama.Uuid { return sarama.Uuid{f.recreated + 1} }

func (f *fakeTopic) stamp(partition int32, metadata string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.metadata == nil {
		f.metadata = make(map[int32]string)
	}
	f.metadata[partition] = metadata
}

// Topics implements groupClient.
func (f *fakeCoordinator) Topics(_ context.Context,
	topics []string) (map[string]kafkadriver.TopicState, error) {
	t := &f.topic
	t.mu.Lock()
	before := t.before
	t.mu.Unlock()
	if before != nil {
		before()
	}
	t.mu.Lock()
	broken, answer := t.broken, &sarama.TopicMetadata{Name: topics[0], Uuid: t.uuid()}
	switch {
	case t.absent:
		answer = &sarama.TopicMetadata{Name: topics[0], Err: sarama.ErrUnknownTopicOrPartition}
	case t.noUUID:
		answer.Uuid = sarama.Uuid{}
	}
	onLook := t.onLook
	t.mu.Unlock()
	if onLook != nil {
		onLook()
	}
	if broken {
		return nil, errors.New("nobody answers")
	}
	return statesOf([]*sarama.TopicMetadata{answer}), nil
}

// Committed implements groupClient.
func (f *fakeCoordinator) Committed(_ context.Context, _ string, partition int32) (int64, string,
	error) {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	f.topic.mu.Lock()
	defer f.topic.mu.Unlock()
	offset, ok := f.group.committed[partition]
	if !ok {
		return -1, "", nil
	}
	return offset, f.topic.metadata[partition], nil
}

// Bounds implements groupClient.
func (f *fakeCoordinator) Bounds(_ context.Context, _ string,
	partition int32) (oldest, end int64, err error) {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	if log := f.group.log[partition]; len(log) > 0 {
		oldest = log[0].Offset
	}
	return oldest, f.group.end(partition), nil
}

// Since implements groupClient.
func (f *fakeCoordinator) Since(context.Context, string, int32, time.Time) (int64, error) {
	return 0, nil // all messages lie within the window
}

// delete deletes the topic, and with it what was committed. Claims of it stay open.
func (f *fakeCoordinator) delete() {
	f.group.change(func() {
		f.topic.mu.Lock()
		defer f.topic.mu.Unlock()
		f.topic.absent, f.topic.metadata = true, nil
		for p := range f.group.log {
			f.group.log[p] = nil
		}
		clear(f.group.committed)
	})
}

// create creates it again, with these messages in partition 0.
func (f *fakeCoordinator) create(messages ...*sarama.ConsumerMessage) {
	f.topic.mu.Lock()
	f.topic.recreated++
	f.topic.absent = false
	f.topic.mu.Unlock()
	f.group.add(messages...)
}

// recreate deletes the topic and creates it again.
func (f *fakeCoordinator) recreate(messages ...*sarama.ConsumerMessage) {
	f.delete()
	f.create(messages...)
}

// hook sets what is called around a look; it is called once.
func (f *fakeTopic) hook(where *func(), call func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*where = func() {
		f.mu.Lock()
		*where = nil
		f.mu.Unlock()
		call()
	}
}
