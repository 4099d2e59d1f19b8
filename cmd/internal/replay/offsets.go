package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// part is a partition of the dead-letter topic.
type part struct {
	number   int32
	position int64 // of the next offset to look at
	end      int64 // where the partition ended when the command began
	done     finished
}

// parts asks where to begin and to end.
func (k *kafka) parts(topic, group string) ([]*part, error) {
	numbers, err := k.client.Partitions(topic)
	if err != nil {
		return nil, fmt.Errorf("--topic %q: %w", topic, err)
	}
	if err := k.checkGroup(group); err != nil {
		return nil, err
	}
	committed, err := k.admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: numbers})
	if errors.Is(err, sarama.ErrGroupIDNotFound) { // it has never committed
		committed, err = &sarama.OffsetFetchResponse{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--group %q: %w", group, err)
	}
	all := make([]*part, 0, len(numbers))
	for _, n := range numbers {
		p, err := k.part(topic, n, committed.GetBlock(topic, n))
		if err != nil {
			return nil, fmt.Errorf("%s/%d: %w", topic, n, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// checkGroup refuses a group with members: its offsets belong to them.
func (k *kafka) checkGroup(group string) error {
	described, err := k.admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		return fmt.Errorf("--group %q: %w", group, err)
	}
	for _, d := range described {
		if len(d.Members) > 0 {
			return fmt.Errorf("--group %q has members: it must be this command's own", group)
		}
	}
	return nil
}

func (k *kafka) part(topic string, n int32, committed *sarama.OffsetFetchResponseBlock) (*part,
	error) {
	oldest, err := k.client.GetOffset(topic, n, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	newest, err := k.client.GetOffset(topic, n, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	p := &part{number: n, end: newest}
	if committed != nil && committed.Err != sarama.ErrNoError {
		return nil, committed.Err
	}
	if committed != nil && committed.Offset >= 0 {
		if p.done, err = parseFinished(committed.Offset, committed.Metadata); err != nil {
			return nil, err
		}
	}
	if p.done.next > newest {
		return nil, fmt.Errorf(
			"offset %d is committed, and the partition ends at %d: it is another topic by now; choose another --group", p.done.next, newest)
	}
	p.done = p.done.with(p.done.next, oldest) // what retention has deleted
	p.position = p.done.next
	return p, nil
}

const (
	commitTries = 5
	commitPause = 200 * time.Millisecond
)

// commit returns when the broker has what is finished of a partition.
func (k *kafka) commit(ctx context.Context, topic, group string, number int32,
	done finished) (err error) {
	for try := range commitTries {
		if try > 0 {
			select {
			case <-time.After(commitPause):
			case <-ctx.Done():
				return errors.Join(err, context.Cause(ctx))
			}
			_ = k.client.RefreshCoordinator(group)
		}
		if err = k.commitOnce(topic, group, number, done); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the offset cannot be committed: %w", err)
}

func (k *kafka) commitOnce(topic, group string, number int32, done finished) error {
	broker, err := k.client.Coordinator(group)
	if err != nil {
		return err
	}
	// of no generation: refused while the group has members
	r := sarama.NewOffsetCommitRequest(k.client.Config(), group)
	r.AddBlockWithLeaderEpoch(topic, number, done.next, -1, 0, done.text())
	response, err := broker.CommitOffset(r)
	if err != nil {
		_ = broker.Close() // a dead connection stays one; Coordinator opens another
		return err
	}
	code, ok := response.Errors[topic][number]
	switch {
	case !ok:
		return sarama.ErrIncompleteResponse
	case code != sarama.ErrNoError:
		return code
	}
	return nil
}
