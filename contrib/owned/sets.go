package owned

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

const (
	// memberBytes is the length of a member.
	memberBytes = 8
	// cardsAtOnce is how many sets and buckets one pipeline counts, and bucketsAtOnce is how many
	// buckets one pipeline reads.
	cardsAtOnce   = 512
	bucketsAtOnce = 64
	// scanAtOnce is how many members of a set one command asks for. During a larger answer, all
	// other clients would wait.
	scanAtOnce = 4096
)

// reader reads sets and buckets of members.
type reader struct {
	client redis.UniversalClient
}

// stored is the key of a fresh set, or of a bucket, which is a string.
type stored struct {
	key    string
	bucket bool
}

// pipelined queues commands with queue, sends them in one pipeline, and returns when ctx ends.
func pipelined[T redis.Cmder](ctx context.Context, client redis.UniversalClient,
	queue func(redis.Pipeliner) []T) ([]T, error) {
	type got struct {
		cmds []T
		err  error
	}
	g, err := script.Within(ctx, func() (g got) {
		pipe := client.Pipeline()
		g.cmds = queue(pipe)
		_, g.err = script.Exec(ctx, client, pipe)
		return g
	})
	return g.cmds, errors.Join(err, g.err)
}

// count returns the number of members of each set or bucket, and 0 if it does not exist. It takes
// one round trip for each 512 of them.
func (r reader) count(ctx context.Context, all []stored) ([]int64, error) {
	cards := make([]int64, 0, len(all))
	for some := range slices.Chunk(all, cardsAtOnce) {
		cmds, err := pipelined(ctx, r.client, func(pipe redis.Pipeliner) []*redis.IntCmd {
			cmds := make([]*redis.IntCmd, len(some))
			for i, at := range some {
				if at.bucket {
					cmds[i] = pipe.StrLen(ctx, at.key)
				} else {
					cmds[i] = pipe.SCard(ctx, at.key)
				}
			}
			return cmds
		})
		if err != nil {
			return nil, fmt.Errorf("owned: counting members: %w", err)
		}
		for i, cmd := range cmds {
			n := cmd.Val()
			if some[i].bucket {
				n /= memberBytes
			}
			cards = append(cards, n)
		}
	}
	return cards, nil
}

// each calls yield with the members of each set or bucket, in any order; a bucket may contain a
// member more than once. The argument cards is the result of count. Members that are added
// meanwhile may or may not be among them. It takes one round trip for each 64 buckets, and one for
// each 4096 members of a set.
func (r reader) each(ctx context.Context, all []stored, cards []int64,
	yield func(members []int64) error) error {
	var buckets []string
	for i, at := range all {
		switch {
		case cards[i] == 0:
		case at.bucket:
			buckets = append(buckets, at.key)
		default:
			members, err := r.scan(ctx, at.key)
			if err == nil {
				err = yield(members)
			}
			if err != nil {
				return err
			}
		}
	}
	for some := range slices.Chunk(buckets, bucketsAtOnce) {
		if err := r.buckets(ctx, some, yield); err != nil {
			return err
		}
	}
	return nil
}

// buckets reads some buckets in one pipeline. A bucket that has expired meanwhile has no members.
func (r reader) buckets(ctx context.Context, keys []string, yield func([]int64) error) error {
	cmds, err := pipelined(ctx, r.client, func(pipe redis.Pipeliner) []*redis.StringCmd {
		cmds := make([]*redis.StringCmd, len(keys))
		for i, key := range keys {
			cmds[i] = pipe.GetRange(ctx, key, 0, -1) // GET answers an absent key with an error
		}
		return cmds
	})
	if err != nil {
		return fmt.Errorf("owned: reading buckets: %w", err)
	}
	for i, cmd := range cmds {
		members, err := script.ReadMembers(cmd.Val())
		if err != nil {
			return fmt.Errorf("%w: the bucket %s", err, keys[i])
		}
		if err := yield(members); err != nil {
			return err
		}
	}
	return nil
}

// scan reads a set piece by piece. SSCAN may name a member twice while the set grows. It names each
// member that is there all the time.
func (r reader) scan(ctx context.Context, key string) ([]int64, error) {
	type page struct {
		keys   []string
		cursor uint64
		err    error
	}
	var members []int64
	for cursor := uint64(0); ; {
		p, err := script.Within(ctx, func() (p page) {
			p.keys, p.cursor, p.err = r.client.SScan(ctx, key, cursor, "", scanAtOnce).Result()
			return p
		})
		if err = errors.Join(err, p.err); err != nil {
			return nil, fmt.Errorf("owned: reading a set: %w", err)
		}
		some, err := parseMembers(key, p.keys)
		if err != nil {
			return nil, err
		}
		members = append(members, some...)
		if cursor = p.cursor; cursor == 0 {
			slices.Sort(members)
			return slices.Compact(members), nil
		}
	}
}

func parseMembers(key string, texts []string) ([]int64, error) {
	members := make([]int64, len(texts))
	for i, text := range texts {
		if len(text) != memberBytes {
			return nil, fmt.Errorf("%w: %s has the member %.40q", script.ErrUnreadable,
				key, text)
		}
		members[i] = int64(binary.BigEndian.Uint64([]byte(text))) // 64 bits either way
	}
	return members, nil
}
