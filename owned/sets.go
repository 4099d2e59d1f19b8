package owned

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
)

const (
	// cardsAtOnce is how many sets are counted in one pipeline, setsAtOnce how many are read.
	cardsAtOnce = 512
	setsAtOnce  = 64
	// wholeSet is how many members a set has at most to be read by one command: a server that answers
	// with more keeps everybody else waiting.
	wholeSet = 4096
)

// reader reads sets of members.
type reader struct {
	client redis.UniversalClient
}

// pipelined queues commands with queue, sends them in one pipeline, and returns when ctx ends.
func pipelined[T redis.Cmder](ctx context.Context, client redis.UniversalClient, queue func(redis.Pipeliner) []T) ([]T, error) {
	type got struct {
		cmds []T
		err  error
	}
	g, err := redisscript.Within(ctx, func() (g got) {
		pipe := client.Pipeline()
		g.cmds = queue(pipe)
		_, g.err = pipe.Exec(ctx)
		return g
	})
	return g.cmds, errors.Join(err, g.err)
}

// count returns the number of members of each set, 0 where there is none. One round trip for each 512.
func (r reader) count(ctx context.Context, keys []string) ([]int64, error) {
	cards := make([]int64, 0, len(keys))
	for some := range slices.Chunk(keys, cardsAtOnce) {
		cmds, err := pipelined(ctx, r.client, func(pipe redis.Pipeliner) []*redis.IntCmd {
			cmds := make([]*redis.IntCmd, len(some))
			for i, key := range some {
				cmds[i] = pipe.SCard(ctx, key)
			}
			return cmds
		})
		if err != nil {
			return nil, fmt.Errorf("owned: counting sets: %w", err)
		}
		for _, cmd := range cmds {
			cards = append(cards, cmd.Val())
		}
	}
	return cards, nil
}

// each calls yield with the members of each set, each of them once, in any order of the sets. cards is
// what count has said. Members that are added meanwhile may or may not be among them. One round trip for
// each 64 sets, and one for each 4096 members of a large one.
func (r reader) each(ctx context.Context, keys []string, cards []int64, yield func(members []int64) error) error {
	var small []string
	flush := func() error {
		err := r.whole(ctx, small, yield)
		small = small[:0]
		return err
	}
	for i, key := range keys {
		switch {
		case cards[i] == 0:
			continue
		case cards[i] > wholeSet:
			members, err := r.scan(ctx, key)
			if err == nil {
				err = yield(members)
			}
			if err != nil {
				return err
			}
		default:
			if small = append(small, key); len(small) == setsAtOnce {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// whole reads small sets in one pipeline.
func (r reader) whole(ctx context.Context, keys []string, yield func([]int64) error) error {
	if len(keys) == 0 {
		return nil
	}
	cmds, err := pipelined(ctx, r.client, func(pipe redis.Pipeliner) []*redis.StringSliceCmd {
		cmds := make([]*redis.StringSliceCmd, len(keys))
		for i, key := range keys {
			cmds[i] = pipe.SMembers(ctx, key)
		}
		return cmds
	})
	if err != nil {
		return fmt.Errorf("owned: reading sets: %w", err)
	}
	for i, cmd := range cmds {
		members, err := parseMembers(keys[i], cmd.Val())
		if err == nil {
			err = yield(members)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// scan reads a set piece by piece. SSCAN may tell of a member twice while the set grows, and does tell of
// each that is there all the time.
func (r reader) scan(ctx context.Context, key string) ([]int64, error) {
	type page struct {
		keys   []string
		cursor uint64
		err    error
	}
	var members []int64
	for cursor := uint64(0); ; {
		p, err := redisscript.Within(ctx, func() (p page) {
			p.keys, p.cursor, p.err = r.client.SScan(ctx, key, cursor, "", wholeSet).Result()
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
		m, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: %s has the member %.40q", redisscript.ErrUnreadable, key, text)
		}
		members[i] = m
	}
	return members, nil
}
