package redisscript

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// OwnAsk asks for ids. Nothing of it may be changed afterwards.
type OwnAsk struct {
	// Epoch of head: the owner's, or as it was read.
	Epoch uint64
	// Foreign is for who does not hold the partition: it also looks in run, and needs Gen
	// and Newest as they were read in head: the newest fresh set of generation Gen, or 0.
	Foreign bool
	Gen     int64
	Newest  uint64
	IDs     []int64
	// Fresh sets are looked in for all ids, a bucket for those that may be in it, after all
	// of them. Those in which most will be found stand first: who is found is not looked for
	// again.
	Fresh   []string
	Buckets []OwnBucket
	// FoldedTo tells, of an owner's ask, to where each generation was folded when the sets were
	// named: OwnReply.Moved says whether one was folded further.
	FoldedTo []OwnFoldedTo
}

// OwnBucket is a bucket and which of the ids to look for: indexes, from 0.
type OwnBucket struct {
	Key string
	Of  []int
}

// OwnFoldedTo is the last fresh set of a generation that was folded, 0 for none.
type OwnFoldedTo struct {
	Gen int64
	N   uint64
}

// NewOwnAsk looks for ids in the sets that are named. It writes nothing.
//
// A foreign ask is one script. That of an owner looks in the fresh sets by script, and reads
// the buckets by plain commands behind it, to search them here: Lua hashes all of a string
// that it is given, which costs more than the claim that the ask is to save.
//
// An id that was marked in one of the generations named is found all the same, whatever
// comes in between. Members move one way only: a fold adds them to their buckets, and then
// removes the set. Say that the script finds the epoch to be the owner's.
//
//   - It finds no generation folded further than the owner knew when it named the sets. Then
//     what is in no fresh set at the time of the script was in its bucket when the sets were
//     named, and a bucket is read after that, be it before the script or after it. Whether
//     go-redis, a Cluster or a missing script has changed the order does not matter.
//   - It does find one (Moved): what left the fresh sets before the script is in its bucket
//     since before the script. So the buckets are read once more after its answer has come.
//     A generation of which no buckets were named has to be asked for again by the owner.
//   - Another owner comes after the script: he moves members to buckets, which are then read
//     with more in them, and what he marks is marked after the ask. Who comes before the
//     script has raised the epoch: it answers OwnStale.
//   - A forget, or the end of a generation, removes an id from all sets at once. Who is not
//     found for that reason is not there.
//
// A bucket that could not be read, and may have one of the ids that were not found, is
// the error of the whole ask: never are its ids absent.
func NewOwnAsk(k OwnKeys, q *OwnAsk) Call {
	keys := []string{k.Head}
	if q.Foreign {
		keys = append(keys, k.Own, k.Run)
	}
	keys = append(keys, q.Fresh...)
	args := make([]any, 0, 7+len(q.Buckets)+2*len(q.FoldedTo))
	args = append(args, q.Epoch, bit(q.Foreign), q.Gen, q.Newest, ownMembers(q.IDs, done), ownMembers(q.IDs, touched), len(q.Fresh))
	if !q.Foreign {
		for _, f := range q.FoldedTo {
			args = append(args, f.Gen, f.N)
		}
		call := ownCall(ownAskScript, keys, args)
		if len(q.Buckets) > 0 {
			call.reads = q
		}
		return call
	}
	for _, b := range q.Buckets {
		keys = append(keys, b.Key)
		args = append(args, ownIndexes(b.Of))
	}
	return ownCall(ownAskScript, keys, args)
}

// ownIndexes is a list of indexes, from 1 and with commas.
func ownIndexes(of []int) string {
	var b []byte
	for i, at := range of {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(at)+1, 10)
	}
	return string(b)
}

// read returns the commands that read the buckets of an owner's ask.
func (q *OwnAsk) read(ctx context.Context) []redis.Cmder {
	if q == nil {
		return nil
	}
	cmds := make([]redis.Cmder, len(q.Buckets))
	for i := range q.Buckets {
		// GET says of what is not there that it failed, and MGET of what is no bucket that it is
		// not there.
		cmds[i] = redis.NewStringCmd(ctx, "getrange", q.Buckets[i].Key, 0, -1)
	}
	return cmds
}

// readBuckets finishes the asks of owners, of which read are the buckets: of all of them, one
// after the other.
func (r *Runner) readBuckets(ctx context.Context, calls []Call, replies []OwnReply, read []redis.Cmder) {
	var again []redis.Cmder
	for i := range calls {
		if calls[i].reads == nil || !replies[i].Moved {
			continue
		}
		again = append(again, calls[i].reads.read(ctx)...)
	}
	r.exec(ctx, again, nil)
	for i := range calls {
		q := calls[i].reads
		if q == nil {
			continue
		}
		var got []redis.Cmder
		got, read = read[:len(q.Buckets)], read[len(q.Buckets):]
		if replies[i].Moved {
			got, again = again[:len(q.Buckets)], again[len(q.Buckets):]
		}
		if replies[i].Err == nil && replies[i].Answer == OwnFound && len(replies[i].Found) == len(q.IDs) {
			if err := q.search(got, replies[i].Found); err != nil {
				replies[i] = OwnReply{Err: err}
			}
		}
	}
}

// search looks in the buckets for those that have no mark yet.
func (q *OwnAsk) search(buckets []redis.Cmder, found []Found) error {
	for i, b := range q.Buckets {
		for _, at := range b.Of {
			if found[at].Done() {
				continue
			}
			blob, err := ownBucket(buckets[i])
			if err != nil {
				return fmt.Errorf("bucket %s: %w", b.Key, err)
			}
			if f := ownSearch(blob, q.IDs[at]); f != 0 {
				found[at] = f
			}
		}
	}
	return nil
}

func ownBucket(cmd redis.Cmder) (string, error) {
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

// ownSearch tells what a bucket has of an id: a mark, or else a touch.
func ownSearch(blob string, id int64) (found Found) {
	for id := done(id); len(blob) >= 8; blob = blob[8:] {
		member := int64(binary.BigEndian.Uint64([]byte(blob[:8]))) //nolint:gosec // 64 bits either way
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
