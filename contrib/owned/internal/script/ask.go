package script

import (
	"strconv"
)

// Ask asks for ids. Nothing of it may be changed afterwards.
type Ask struct {
	// Epoch of head: the owner's, or as it was read.
	Epoch uint64
	// Foreign is for a caller that does not hold the partition: it also looks in run, and needs Gen
	// and Newest as they were read in head: the newest fresh set of generation Gen, or 0.
	Foreign bool
	Gen     int64
	Newest  uint64
	IDs     []int64
	// Fresh sets are looked in for all ids, a bucket for those that may be in it, after all
	// of them. Those in which most will be found stand first: an id that is found is not
	// looked for again.
	Fresh   []string
	Buckets []Bucket
	// FoldedTo tells, of an owner's ask, to where each generation was folded when the sets were
	// named: Reply.Moved says whether one was folded further.
	FoldedTo []FoldedTo
}

// Bucket is a bucket and which of the ids to look for: indexes, from 0.
type Bucket struct {
	Key string
	Of  []int
}

// FoldedTo is the last fresh set of a generation that was folded, 0 for none.
type FoldedTo struct {
	Gen int64
	N   uint64
}

// NewAsk looks for ids in the sets that are named. It writes nothing.
//
// A foreign ask is one script. That of an owner looks in the fresh sets by script. It reads
// the buckets by plain commands behind the script, to search them here: Lua hashes all of a string
// that it is given, which costs more than the claim that the ask is to save.
//
// An id that was marked in one of the generations named is found anyway, whatever
// comes in between. Members move one way only: a fold adds them to their buckets, and then
// removes the set. Say that the script finds the epoch to be the owner's.
//
//   - It finds no generation folded further than the owner knew when it named the sets. Then
//     what is in no fresh set at the time of the script was in its bucket when the sets were
//     named, and a bucket is read after that, be it before the script or after it. Whether
//     go-redis, a Cluster or a missing script has changed the order does not matter.
//   - It does find one (Moved): what left the fresh sets before the script is in its bucket
//     since before the script. So the buckets read with it are read once more after its answer.
//     A generation of which no buckets were named has to be asked for again by the owner.
//   - Another owner comes after the script: it moves members to buckets, which are then read
//     with more in them, and what it marks is marked after the ask. An owner that comes before
//     the script has raised the epoch: it answers AnswerStale.
//   - A forget, or the end of a generation, removes an id from all sets at once. An id that is
//     not found for that reason is not there.
//
// The first buckets are read in the pipeline of the scripts, each 512 further ones in another;
// bucket.go has the bound of the memory.
//
// A bucket that could not be read, and may have one of the ids that were not found, is
// the error of the whole ask: never are its ids absent.
func NewAsk(k Keys, q *Ask) Call {
	keys := []string{k.Head}
	if q.Foreign {
		keys = append(keys, k.Own, k.Run)
	}
	keys = append(keys, q.Fresh...)
	args := make([]any, 0, 7+len(q.Buckets)+2*len(q.FoldedTo))
	args = append(args, q.Epoch, bit(q.Foreign), q.Gen, q.Newest, encodeMembers(q.IDs, done),
		encodeMembers(q.IDs, touched), len(q.Fresh))
	if !q.Foreign {
		for _, f := range q.FoldedTo {
			args = append(args, f.Gen, f.N)
		}
		call := Call{script: askScript, keys: keys, args: args}
		if len(q.Buckets) > 0 {
			call.reads = q
		}
		return call
	}
	for _, b := range q.Buckets {
		keys = append(keys, b.Key)
		args = append(args, indexes(b.Of))
	}
	return Call{script: askScript, keys: keys, args: args}
}

// indexes is a list of indexes, from 1 and with commas.
func indexes(of []int) string {
	var b []byte
	for i, at := range of {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(at)+1, 10)
	}
	return string(b)
}
