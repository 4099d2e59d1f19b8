package kafkafranz

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// assigned is a partition that this member has.
type assigned struct {
	s    *session
	at   topicPartition
	p    *kafkadriver.Partition
	lose context.CancelCauseFunc // ends it without a drain; the cause wraps ErrFenced
	end  func()                  // gives it up; every call returns after that
	high atomic.Int64            // the end of the log, as of the last fetch
}

func (s *session) onAssigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	<-s.ready
	if len(added) == 0 {
		return
	}
	// When a topic was deleted and created again, the client assigns it anew without revoking it
	// first.
	s.giveUp(added)
	member, generation := s.client.GroupMetadata()
	s.polls.between(func() {
		each(added, func(at topicPartition) { s.assign(at, member, generation) })
	})
}

// onRevoked drains the partitions that must be given up. Until it returns they belong to this
// member, and its commits count.
func (s *session) onRevoked(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	<-s.ready
	s.giveUp(lost)
}

// onLost gives up partitions that already belong to another member.
func (s *session) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	<-s.ready
	each(lost, func(at topicPartition) {
		s.commits.forget(at)
		if a := s.find(at); a != nil {
			a.lose(kafkaadapter.ErrFenced)
		}
	})
	s.giveUp(lost)
}

func each(set map[string][]int32, f func(topicPartition)) {
	for topic, numbers := range set {
		for _, n := range numbers {
			f(topicPartition{topic, n})
		}
	}
}

func (s *session) find(at topicPartition) *assigned {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assigned[at]
}

// assign begins a partition. It holds no lock while the partition starts and calls hooks: the
// committer takes its own lock around s.mu, and a hook may ask for Progress.
func (s *session) assign(at topicPartition, member string, generation int32) {
	s.mu.Lock()
	over := s.over // refused, fenced, or being closed
	s.mu.Unlock()
	if over {
		return
	}
	a := s.start(at, member, generation)
	if a == nil {
		return
	}
	s.mu.Lock()
	late := s.over
	s.assigned[at] = a
	s.mu.Unlock()
	if late {
		a.lose(kafkaadapter.ErrFenced)
		a.end()
	}
}

// start makes a partition and starts it, or stops the session.
func (s *session) start(at topicPartition, member string, generation int32) *assigned {
	ctx, lose := context.WithCancelCause(s.base)
	a := &assigned{s: s, at: at, lose: lose}
	p, err := s.engine.Assign(kafkadriver.Assignment{
		Topic: at.topic, Partition: at.partition, Generation: generation,
		Context: ctx, Fenced: ctx, Committer: s.committer, Counts: s.counts,
		Pause: func(on bool) { s.gate(at, on) }, LogEnd: a.high.Load, Begin: -1,
		Halt: func() { s.stop(context.Canceled) },
	})
	if err == nil {
		s.commits.begin(at, member)
		err = p.Start()
	}
	if err != nil {
		lose(err)
		s.stop(err)
		return nil
	}
	a.p = p
	a.end = sync.OnceFunc(a.giveUp)
	return a
}

// giveUp ends partitions, all at the same time: they share one drain budget.
func (s *session) giveUp(set map[string][]int32) {
	var ends sync.WaitGroup
	each(set, func(at topicPartition) {
		if a := s.find(at); a != nil {
			ends.Go(a.end)
		}
	})
	ends.Wait()
}

func (a *assigned) giveUp() {
	err := a.p.End()
	a.lose(nil)
	a.s.commits.forget(a.at)
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	delete(a.s.assigned, a.at)
	if err != nil {
		a.s.failed = errors.Join(a.s.failed, err)
	}
}

// take hands records to the partition.
func (a *assigned) take(topic [16]byte, records []*kgo.Record, high int64) error {
	a.high.Store(high)
	if a.p.Context().Err() != nil {
		return nil // it is being given up
	}
	uuid := kafkadriver.TopicID(topic)
	if e := a.s.engine; uuid == "" && (e.RangeHandler != nil || e.Positions) {
		return fmt.Errorf("kafkafranz: topic %q has no UUID, which Positions and a RangeHandler need: brokers must be 3.1 at least",
			a.at.topic)
	}
	messages := make([]kafkaadapter.Message, len(records))
	for i, r := range records {
		messages[i] = messageOf(r)
		messages[i].TopicID = uuid
	}
	a.s.commits.note(a.at, records)
	return a.p.Take(messages)
}
