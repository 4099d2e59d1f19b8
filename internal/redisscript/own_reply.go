package redisscript

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// OwnReply is what a script of owned partitions returned, or why that is not known. What a
// script does not tell is zero; without a head, all but Answer and Now.
type OwnReply struct {
	Answer string
	// Now is the server's clock, as the time since 1970.
	Now time.Duration
	// Left is for how long another holds the partition.
	Left time.Duration
	// SharedUntil is until when the partition is shared, as the time since 1970.
	SharedUntil time.Duration
	// Gen is the newest generation of the partition; with OwnEdge, the one to name.
	Gen int64
	// Newest is the newest fresh set: of the generation that a turn named, else of Gen.
	Newest uint64
	// Epoch the partition has, and Before it was acquired.
	Epoch, Before uint64
	// Seq grows by one with each acquire, turn and release; a turn that finds it lower
	// than its owner has heard tells that the server has lost some.
	Seq uint64
	// Fence grows with each turn, and is never that of another one.
	Fence uint64
	// Forgets grows with each forget.
	Forgets    uint64
	MapVersion uint64
	// Found tells for each id of a query, or for the one of a forget, what was found.
	Found []Found
	// Live tells a foreign query that somebody holds the partition.
	Live bool
	// Moved tells an owner that asks that a generation was folded further than it knew.
	Moved bool
	// Err is set when the script was refused, or may or may not have run.
	Err error
}

// Found is what was found of an id.
type Found uint8

// Done reports whether the id has a mark.
func (f Found) Done() bool { return f&1 != 0 }

// Touched reports whether the inner store was, or may have been, asked for the id. Of one
// that is done it is not told.
func (f Found) Touched() bool { return f&2 != 0 }

// Begun reports whether the id is in a begin of the ownership that the partition has, or had last.
func (f Found) Begun() bool { return f&4 != 0 }

// Runs is the number of further epochs in whose begins the id is, at most 31.
func (f Found) Runs() int { return int(f >> 3) }

// RunOwn is [Runner.Run] for the scripts of owned partitions. A turn that a full server
// refuses is sent once more without its begins, and answers OwnFull.
func (r *Runner) RunOwn(ctx context.Context, calls []Call) []OwnReply {
	if len(calls) == 0 {
		return nil
	}
	replies, err := Within(ctx, func() []OwnReply { return r.sendOwn(ctx, calls) })
	if err != nil {
		replies = make([]OwnReply, len(calls))
		for i := range replies {
			replies[i].Err = err
		}
	}
	return replies
}

func (r *Runner) sendOwn(ctx context.Context, calls []Call) []OwnReply {
	replies := r.answersOwn(ctx, calls)
	var rest []Call
	var of []int
	for i := range replies {
		if calls[i].rest != nil && redis.HasErrorPrefix(replies[i].Err, "OOM") {
			rest, of = append(rest, *calls[i].rest), append(of, i)
		}
	}
	for i, reply := range r.answersOwn(ctx, rest) {
		if reply.Answer == OwnDone {
			reply.Answer = OwnFull
		}
		replies[of[i]] = reply
	}
	return replies
}

func (r *Runner) answersOwn(ctx context.Context, calls []Call) []OwnReply {
	if len(calls) == 0 {
		return nil
	}
	replies := make([]OwnReply, len(calls))
	all := looks(calls, replies)
	beside := min(len(all), bucketsAtOnce)
	for i, cmd := range r.evaluate(ctx, calls, read(ctx, all[:beside], bucketStart), nil) {
		replies[i] = parseOwn(cmd)
	}
	r.readBuckets(ctx, all, beside)
	return replies
}

// ownValues is how many values these scripts return: an answer, numbers, what was found.
const ownValues = 14

// parseOwn reads them. As in parse, a value comes before an error.
func parseOwn(cmd *redis.Cmd) OwnReply {
	v, answered := cmd.Val().([]any)
	switch err := cmd.Err(); {
	case err != nil && !answered:
		return OwnReply{Err: unreadable(err)}
	case !answered:
		return OwnReply{Err: fmt.Errorf("script returned %T", cmd.Val())}
	case len(v) != ownValues:
		return OwnReply{Err: fmt.Errorf("script returned %d values, not %d", len(v), ownValues)}
	}
	answer, ok1 := v[0].(string)
	found, ok2 := v[ownValues-1].(string)
	var n [ownValues - 2]int64
	for i := range n {
		var ok bool
		if n[i], ok = v[i+1].(int64); !ok {
			return OwnReply{Err: fmt.Errorf("script returned %T as value %d", v[i+1], i+1)}
		}
	}
	switch {
	case !ok1 || !ok2:
		return OwnReply{Err: fmt.Errorf("script returned (%T, .. %T)", v[0], v[ownValues-1])}
	case answer == "unreadable":
		return OwnReply{Err: fmt.Errorf("%w: a head of version %d", ErrUnreadable, n[1])}
	}
	return OwnReply{
		Answer: answer, Now: FromMillis(n[0]), Left: FromMillis(n[1]),
		SharedUntil: FromMillis(n[2]), Gen: n[3], Newest: uint64(n[4]),
		Epoch: uint64(n[5]), Before: uint64(n[6]), Seq: uint64(n[7]), Fence: uint64(n[8]),
		Forgets: uint64(n[9]),
		// The scripts count from 0.
		MapVersion: uint64(n[10]), Live: n[11] == 1, Moved: n[11] == 2, Found: []Found(found),
	}
}
