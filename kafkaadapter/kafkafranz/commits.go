package kafkafranz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// commitPatience bounds an attempt to commit. Giving up an attempt closes the connection to the
// coordinator, so commitPatience is longer than a rebalance of healthy members.
const commitPatience = 10 * time.Second

var (
	errUnanswered = errors.New("kafkafranz: the commit was not answered")
	errRejoined   = fmt.Errorf("kafkafranz: the member has joined again under another id: %w",
		kerr.UnknownMemberID)
)

// commits commits the offsets of one session, and knows the result of each commit.
type commits struct {
	*kafkadriver.Offsets
	s *session

	mu   sync.Mutex
	held map[topicPartition]*holding // this member's partitions
}

// holding has what the commit of a partition needs besides its offset.
type holding struct {
	member string // whose partition it is
	epochs epochs
}

func newCommits(s *session) *commits {
	return &commits{s: s, Offsets: s.engine.NewOffsets(nil),
		held: make(map[topicPartition]*holding)}
}

// begin adds a partition.
func (c *commits) begin(at topicPartition, member string) {
	c.mu.Lock()
	c.held[at] = &holding{member: member}
	c.mu.Unlock()
	c.Add(at.topic, at.partition)
}

func (c *commits) forget(at topicPartition) { c.Forget(at.topic, at.partition) }

// note remembers the leader epochs of what was received.
func (c *commits) note(at topicPartition, records []*kgo.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.held[at]; h != nil {
		for _, r := range records {
			h.epochs.add(r.Offset, r.LeaderEpoch)
		}
	}
}

// unconfirmed returns the offsets to commit.
func (c *commits) unconfirmed() (all map[topicPartition]kafkadriver.Due,
	offsets map[string]map[int32]kgo.EpochOffset) {
	all = make(map[topicPartition]kafkadriver.Due)
	offsets = make(map[string]map[int32]kgo.EpochOffset)
	for _, d := range c.Due(c.s.base) {
		all[topicPartition{d.Topic, d.Partition}] = d
		if offsets[d.Topic] == nil {
			offsets[d.Topic] = make(map[int32]kgo.EpochOffset)
		}
		offsets[d.Topic][d.Partition] = kgo.EpochOffset{Epoch: c.epoch(d), Offset: d.Next}
	}
	return all, offsets
}

func (c *commits) epoch(d kafkadriver.Due) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[topicPartition{d.Topic, d.Partition}].epochs.before(d.Next)
}

// commit makes one attempt. The committer repeats it while anything is not confirmed. So every
// answer except success leads to another attempt, also REQUEST_TIMED_OUT, which may have been
// applied, and REBALANCE_IN_PROGRESS.
func (c *commits) commit() {
	all, offsets := c.unconfirmed()
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.s.base, commitPatience)
	defer cancel()
	ctx = kgo.PreCommitFnContext(ctx, func(r *kmsg.OffsetCommitRequest) error {
		return c.keep(r, all)
	})
	done := func(_ *kgo.Client, r *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse,
		err error) {
		c.answered(all, refusals(all, r, answer, err))
	}
	c.s.client.CommitOffsetsSync(ctx, offsets, done)
}

// keep removes from a request the partitions that have been given up since it was made. If the
// client has waited for a join, the request names the generation after that join, so the
// coordinator would accept an offset of a partition that belongs to another member by now. It would
// also do so if this member was expelled, has joined again under another id, and has got back a
// partition that belonged to another member meanwhile.
func (c *commits) keep(r *kmsg.OffsetCommitRequest, all map[topicPartition]kafkadriver.Due) error {
	topics := r.Topics[:0:0]
	for _, topic := range r.Topics {
		var kept []kmsg.OffsetCommitRequestTopicPartition
		for _, p := range topic.Partitions {
			at := topicPartition{topic.Topic, p.Partition}
			d, asked := all[at]
			switch {
			case !asked || !c.Holds(d):
				delete(all, at)
			case c.memberOf(at) != r.MemberID:
				return errRejoined
			default:
				kept = append(kept, p)
			}
		}
		if topic.Partitions = kept; len(kept) > 0 {
			stamp(&topic)
			topics = append(topics, topic)
		}
	}
	r.Topics = topics
	return nil
}

func (c *commits) memberOf(at topicPartition) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[at].member
}

// refusals returns the answer of the broker, or of the client, about each partition; nil means
// committed.
func refusals(all map[topicPartition]kafkadriver.Due, r *kmsg.OffsetCommitRequest,
	answer *kmsg.OffsetCommitResponse, err error) map[topicPartition]error {
	codes, out := codesOf(r, answer), make(map[topicPartition]error, len(all))
	for at := range all {
		out[at] = err
		if code, ok := codes[at]; ok {
			out[at] = kerr.ErrorForCode(code)
		} else if err == nil {
			out[at] = errUnanswered
		}
	}
	return out
}

// answered notes the result for each partition. If an answer fences this member off, answered
// cancels its handlers before it logs and calls hooks, because these may take their time.
//
// It must not ask the client for its generation:
//
//  1. The client reads such an answer and joins again by itself, with its member id and partitions.
//  2. It has the next generation within a millisecond.
//  3. The answer then seems to be about a generation that the member has left, and would not count
//     as a fence.
//  4. The handlers of partitions that other members have had meanwhile would run on.
func (c *commits) answered(all map[topicPartition]kafkadriver.Due,
	refusals map[topicPartition]error) {
	if answer := c.fencing(all, refusals); answer != nil {
		c.s.fence(answer)
	}
	for at, d := range all {
		c.Ended(d, refusals[at])
	}
}

// fencing returns an answer that fences this member off from a partition that it still has. A
// refusal about a partition that it has given up since the request does not count.
func (c *commits) fencing(all map[topicPartition]kafkadriver.Due,
	refusals map[topicPartition]error) error {
	for at, d := range all {
		if isFencing(refusals[at]) && c.Holds(d) {
			return refusals[at]
		}
	}
	return nil
}

// codesOf returns the answer's error codes. Newer answers name topics by their UUID alone.
func codesOf(r *kmsg.OffsetCommitRequest,
	answer *kmsg.OffsetCommitResponse) map[topicPartition]int16 {
	if answer == nil {
		return nil
	}
	names := make(map[[16]byte]string)
	for _, topic := range r.Topics {
		names[topic.TopicID] = topic.Topic
	}
	codes := make(map[topicPartition]int16)
	for _, topic := range answer.Topics {
		name := cmp.Or(topic.Topic, names[topic.TopicID])
		for _, p := range topic.Partitions {
			codes[topicPartition{name, p.Partition}] = p.ErrorCode
		}
	}
	return codes
}

// epochs are the leader epochs of a partition's records. A commit names the epoch of the last
// record before its offset: with it a client that begins there notices that the log was cut
// (KIP-320).
type epochs []epochFrom

// epochFrom is an epoch and the first offset that was received with it.
type epochFrom struct {
	offset int64
	epoch  int32
}

func (e *epochs) add(offset int64, epoch int32) {
	if n := len(*e); n == 0 || (*e)[n-1].epoch != epoch {
		*e = append(*e, epochFrom{offset, epoch})
	}
}

// before returns the epoch of the last record below an offset, and forgets older ones. It is -1
// when that epoch is not known.
func (e *epochs) before(next int64) int32 {
	for len(*e) > 1 && (*e)[1].offset < next {
		*e = (*e)[1:]
	}
	if len(*e) == 0 || (*e)[0].offset >= next {
		return -1
	}
	return (*e)[0].epoch
}
