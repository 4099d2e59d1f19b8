package script

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// One pipeline reads at most bucketsAtOnce times bucketStart of buckets, which is 4 MiB, however
// many keys are asked for. Buckets are planned to have an eighth of bucketStart. If a bucket is
// larger than bucketStart, its start is read, and then all of it, unless the start was enough. It
// is not read in pieces, because a forget moves the later members forward, so a member could be
// missed between two pieces. Only a bucket above bytesAtOnce exceeds the bound, and its pipeline
// reads nothing else.
const (
	bucketsAtOnce = 512
	bucketStart   = 8 << 10
	bytesAtOnce   = bucketsAtOnce * bucketStart
)

// look is a bucket that an owner's ask names, and the bytes that were read of it.
type look struct {
	bucket *Bucket
	of     *Ask
	reply  *Reply // of the ask
	cmd    redis.Cmder
}

// looks returns the buckets of all asks of owners. The answers of the calls will be in replies.
func looks(calls []Call, replies []Reply) (all []look) {
	for i := range calls {
		q := calls[i].reads
		if q == nil {
			continue
		}
		for b := range q.Buckets {
			all = append(all, look{bucket: &q.Buckets[b], of: q, reply: &replies[i]})
		}
	}
	return all
}

// read makes the commands that read the first size bytes of each bucket, or all of it if the
// pipeline is for one bucket.
func read(ctx context.Context, some []look, size int) []redis.Cmder {
	end := size - 1
	if size >= bytesAtOnce {
		end = -1
	}
	cmds := make([]redis.Cmder, len(some))
	for i := range some {
		// GET answers an absent key with an error, and MGET answers a key of another type like an
		// absent one.
		cmds[i] = redis.NewStringCmd(ctx, "getrange", some[i].bucket.Key, 0, end)
		some[i].cmd = cmds[i]
	}
	return cmds
}

// readBuckets finishes the asks of owners whose scripts have answered. The first atOnce buckets
// were read in the pipeline of the scripts; if members have moved, they are read again.
func (r *Runner) readBuckets(ctx context.Context, all []look, atOnce int) {
	first, rest := all[:atOnce], all[atOnce:]
	moved := func(l look) bool { return l.reply.Moved }
	again := filter(first, moved)
	larger := search(filter(first, func(l look) bool { return !moved(l) }), bucketStart)
	clear(first)
	r.readFrom(ctx, larger, bucketStart*8)
	r.readFrom(ctx, again, bucketStart)
	r.readFrom(ctx, rest, bucketStart)
}

// readFrom reads the first size bytes of each bucket, bytesAtOnce in one pipeline, and more of the
// buckets that are larger. It skips the ids that were found meanwhile.
func (r *Runner) readFrom(ctx context.Context, all []look, size int) {
	atOnce := max(1, bytesAtOnce/size)
	for len(all) > 0 {
		var some []look
		for len(all) > 0 && len(some) < atOnce {
			if all[0].wanted() {
				some = append(some, all[0])
			}
			all = all[1:]
		}
		r.exec(ctx, read(ctx, some, size))
		r.readFrom(ctx, search(some, size), size*8)
	}
}

func filter(all []look, which func(look) bool) []look {
	return slices.DeleteFunc(slices.Clone(all), func(l look) bool { return !which(l) })
}

// wanted reports whether one of the IDs that may be in the bucket was not found.
func (l *look) wanted() bool {
	answered := l.reply.Err == nil && l.reply.Answer == AnswerFound &&
		len(l.reply.Found) == len(l.of.IDs)
	return answered && slices.ContainsFunc(l.bucket.Of, func(at int) bool {
		return !l.reply.Found[at].Done()
	})
}

// search looks in the bytes that were read of each bucket for the ids that have no mark yet, and
// then drops the bytes. It returns the buckets that may have more members: those that are at least
// as large as was asked for.
func search(some []look, size int) (larger []look) {
	for i := range some {
		l := &some[i]
		cmd := l.cmd
		l.cmd = nil
		if !l.wanted() {
			continue
		}
		blob, err := bucketBlob(cmd)
		if err != nil {
			*l.reply = Reply{Err: fmt.Errorf("bucket %s: %w", l.bucket.Key, err)}
			continue
		}
		for _, at := range l.bucket.Of {
			if l.reply.Found[at].Done() {
				continue
			}
			if f := searchBucket(blob, l.of.IDs[at]); f != 0 {
				l.reply.Found[at] = f
			}
		}
		if len(blob) >= size && size < bytesAtOnce && l.wanted() {
			larger = append(larger, *l)
		}
	}
	return larger
}

func bucketBlob(cmd redis.Cmder) (string, error) {
	read, ok := cmd.(*redis.StringCmd)
	switch blob, err := read.Result(); {
	case !ok || err != nil:
		return "", unreadable(cmd.Err())
	case len(blob)%8 != 0:
		return "", fmt.Errorf("%w: members of %d bytes", ErrUnreadable, len(blob))
	default:
		return blob, nil
	}
}

// searchBucket reports what a bucket has of an id: a mark, or a touch if it has no mark.
func searchBucket(blob string, id int64) (found IDState) {
	for id := done(id); len(blob) >= 8; blob = blob[8:] {
		member := int64(binary.BigEndian.Uint64([]byte(blob[:8]))) // 64 bits either way
		if done(member) != id {
			continue
		}
		if member == id {
			return 1
		}
		found = 2
	}
	return found
}
