package script

import (
	"strconv"
)

// Ask asks for ids. The caller must not change it after NewAsk.
type Ask struct {
	// Epoch is the owner's epoch. For a foreign ask, it is the epoch as it was read in head.
	Epoch uint64
	// Foreign is set by a caller that does not hold the partition. The ask then also looks in run,
	// and needs Gen and Newest as they were read in head. Newest is the newest fresh set of
	// generation Gen, or 0.
	Foreign bool
	Gen     int64
	Newest  uint64
	IDs     []int64
	// Fresh sets are searched for all ids. Then each of the Buckets is searched for the ids that
	// may be in it. Put the sets with the most ids first: an id that was found is not looked for
	// again.
	Fresh   []string
	Buckets []Bucket
	// FoldedTo holds, in an owner's ask, how far each generation was folded when the sets were
	// named. Reply.Moved reports whether a generation was folded further meanwhile.
	FoldedTo []FoldedTo
}

// Bucket is a bucket, and the indexes, from 0, of the ids to look for in it.
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
// A foreign ask is one script. The ask of an owner looks in the fresh sets by script. It reads the
// buckets with plain commands after the script, and this process searches them, because Lua hashes
// every string that it gets, which costs more than the claim that the ask should save.
//
// An owner's ask finds every id that was marked in a generation that it names, whatever happens
// between naming the sets and reading them. Members move one way only: a fold adds them to their
// buckets, and then removes the set. If the script finds the owner's epoch, there are these cases:
//
//   - No generation was folded further than the owner knew when it named the sets. Then a member
//     that is in no fresh set at the time of the script was in its bucket when the sets were named.
//     The bucket is read later than that, before the script or after it. So it does not matter if
//     go-redis, a Cluster or a missing script changes the order of the commands.
//   - A generation was folded further (Moved). A member that left the fresh sets before the script
//     was in its bucket by then. So the buckets that were read with the script are read again after
//     its answer. The owner must ask again for a generation of which it named no buckets.
//   - Another owner comes after the script. It moves members to buckets, so the ask reads buckets
//     with more members. That owner makes its marks after the ask. If an owner comes before the
//     script, it has raised the epoch, and the script answers AnswerStale.
//   - A forget, or the end of a generation, removes an id from all sets at once. If an id is not
//     found for that reason, it really is in no set any more.
//
// The pipeline of the scripts reads the first 512 buckets, and each 512 further buckets take one
// more pipeline. The bound on the memory is in bucket.go.
//
// If a bucket cannot be read, and may have one of the ids that were not found, the whole ask fails:
// it never answers that these ids are absent.
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

// indexes returns a list of indexes, counted from 1 and separated by commas.
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
