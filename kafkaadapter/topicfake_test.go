package kafkaadapter

import (
	"errors"
	"sync"

	"github.com/IBM/sarama"
)

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

func (f *fakeTopic) uuid() sarama.Uuid { return sarama.Uuid{f.recreated + 1} }

func (f *fakeTopic) stamp(partition int32, metadata string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.metadata == nil {
		f.metadata = make(map[int32]string)
	}
	f.metadata[partition] = metadata
}

// Topics implements commitClient.
func (f *fakeCoordinator) Topics(_ string, topics []string) ([]*sarama.TopicMetadata, error) {
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
	return []*sarama.TopicMetadata{answer}, nil
}

// Committed implements commitClient.
func (f *fakeCoordinator) Committed(_, _ string, partition int32) (int64, string, error) {
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

// Oldest implements commitClient.
func (f *fakeCoordinator) Oldest(string, int32) (int64, error) { return 0, nil }

// delete deletes the topic, and with it what was committed. Whoever reads it reads on.
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
