package script

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Reply is what a script of owned partitions returned, or the reason why that is not known. A field
// is zero if the script does not answer it. Without a head, only Answer and Now are set.
type Reply struct {
	Answer string
	// Now is the server's clock, as the time since 1970.
	Now time.Duration
	// Left is how much longer another owner holds the partition.
	Left time.Duration
	// SharedUntil is when the partition stops being shared, as the time since 1970.
	SharedUntil time.Duration
	// Gen is the newest generation of the partition. With AnswerEdge, it is the generation to name.
	Gen int64
	// Newest is the newest fresh set. It belongs to the generation that a batch write named; for
	// other scripts, to Gen.
	Newest uint64
	// Epoch is the partition's epoch, and Before its epoch before the acquire.
	Epoch, Before uint64
	// Seq grows by one with each acquire, batch write and release. If a batch write finds it lower
	// than the number that its owner knows, the server has lost some of these calls.
	Seq uint64
	// Fence grows with each batch write; no two have the same.
	Fence uint64
	// Forgets grows with each forget.
	Forgets    uint64
	MapVersion uint64
	// Found says for each id of an ask, or for the id of a forget, what was found.
	Found []IDState
	// Live tells a foreign ask that somebody holds the partition.
	Live bool
	// Moved tells an owner's ask that a generation was folded further than the owner knew.
	Moved bool
	// Err is set when the script was refused, or when it is not known whether it has run.
	Err error
}

// IDState is what was found of an id.
type IDState uint8

// Done reports whether the id has a mark.
func (f IDState) Done() bool { return f&1 != 0 }

// Touched reports whether the inner store was, or may have been, asked for the id. It has no
// meaning for an id that is done.
func (f IDState) Touched() bool { return f&2 != 0 }

// Begun reports whether the id is in a begin of the ownership that the partition has, or had last.
func (f IDState) Begun() bool { return f&4 != 0 }

// Runs is the number of further epochs in whose begins the id is, at most 31.
func (f IDState) Runs() int { return int(f >> 3) }

func (r *Runner) send(ctx context.Context, calls []Call) []Reply {
	replies := r.answers(ctx, calls)
	var rest []Call
	var of []int
	for i := range replies {
		if calls[i].rest != nil && redis.HasErrorPrefix(replies[i].Err, "OOM") {
			rest, of = append(rest, *calls[i].rest), append(of, i)
		}
	}
	for i, reply := range r.answers(ctx, rest) {
		if reply.Answer == AnswerDone {
			reply.Answer = AnswerFull
		}
		replies[of[i]] = reply
	}
	return replies
}

func (r *Runner) answers(ctx context.Context, calls []Call) []Reply {
	if len(calls) == 0 {
		return nil
	}
	replies := make([]Reply, len(calls))
	all := looks(calls, replies)
	atOnce := min(len(all), bucketsAtOnce)
	for i, cmd := range r.evaluate(ctx, calls, read(ctx, all[:atOnce], bucketStart)) {
		replies[i] = parse(cmd)
	}
	r.readBuckets(ctx, all, atOnce)
	return replies
}

// ErrUnreadable is in the Err of a Reply when a key holds something that these scripts cannot read,
// because no version that they know has written it.
var ErrUnreadable = errors.New("unreadable record")

// unreadable recognizes a key that holds another type.
func unreadable(err error) error {
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return err
}

// values is how many values these scripts return: an answer, the numbers, and what was found.
const values = 14

// parse reads the values. It looks at the value before the error: when a connection breaks in
// mid-pipeline, go-redis sets the error on all its commands, even on those whose replies it has
// read. A command that was answered on an earlier try keeps that answer; every later try is
// harmless.
func parse(cmd *redis.Cmd) Reply {
	v, answered := cmd.Val().([]any)
	switch err := cmd.Err(); {
	case err != nil && !answered:
		return Reply{Err: unreadable(err)}
	case !answered:
		return Reply{Err: fmt.Errorf("script returned %T", cmd.Val())}
	case len(v) != values:
		return Reply{Err: fmt.Errorf("script returned %d values, not %d", len(v), values)}
	}
	answer, ok1 := v[0].(string)
	found, ok2 := v[values-1].(string)
	var n [values - 2]int64
	for i := range n {
		var ok bool
		if n[i], ok = v[i+1].(int64); !ok {
			return Reply{Err: fmt.Errorf("script returned %T as value %d", v[i+1], i+1)}
		}
	}
	switch {
	case !ok1 || !ok2:
		return Reply{Err: fmt.Errorf("script returned (%T, .. %T)", v[0], v[values-1])}
	case answer == "unreadable":
		return Reply{Err: fmt.Errorf("%w: a head of version %d", ErrUnreadable, n[1])}
	}
	return Reply{
		Answer: answer, Now: FromMillis(n[0]), Left: FromMillis(n[1]),
		SharedUntil: FromMillis(n[2]), Gen: n[3], Newest: uint64(n[4]),
		Epoch: uint64(n[5]), Before: uint64(n[6]), Seq: uint64(n[7]), Fence: uint64(n[8]),
		Forgets: uint64(n[9]),
		// The scripts count from 0.
		MapVersion: uint64(n[10]), Live: n[11] == 1, Moved: n[11] == 2, Found: []IDState(found),
	}
}
