package script

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A member stands for an id. It has 64 bits, and the lowest bit says whether the member means done
// (0) or touched (1). Callers may pass ids with either value of that bit, because the constructors
// set it. Members are sent and stored as 8 bytes, the most significant first; see [ReadMembers].
var (
	acquireScript = load("head", "acquire")
	batchScript   = load("head", "batch")
	// beginScript is the batchScript for batch writes that begin keys. A full server refuses it
	// before it has done anything.
	beginScript   = strict(batchScript)
	askScript     = load("head", "ask")
	foldScript    = load("head", "fold")
	releaseScript = load("head", "release")
	remapScript   = load("head", "remap")
	forgetScript  = load("head", "forget")
)

// The answers of the scripts of owned partitions. The header of each script says which answers the
// script gives, and what it has done for each.
const (
	AnswerDone      = "done"      // batch: all was done
	AnswerAcquired  = "acquired"  // acquire: a new epoch
	AnswerMine      = "mine"      // acquire: this token has it already, in the epoch it has
	AnswerHeld      = "held"      // acquire: another holds it, for Left
	AnswerRemapped  = "remapped"  // acquire: the map has another version
	AnswerAmnesia   = "amnesia"   // there is no head, or it says that data were lost
	AnswerStale     = "stale"     // the epoch is another; ask, forget: or the newest fresh set
	AnswerEdge      = "edge"      // batch: another generation, or a set folded by now; nothing done
	AnswerLapsed    = "lapsed"    // batch: the lease ran out and nobody came: no begins, no touches
	AnswerShared    = "shared"    // batch: no begins; all else was done
	AnswerBehind    = "behind"    // batch: the server has lost writes: no begins; all else was done
	AnswerFull      = "full"      // batch: the server is full: no begins; all else was done
	AnswerFound     = "found"     // ask
	AnswerFolded    = "folded"    // fold: done, now or before
	AnswerForgot    = "forgot"    // fold: something was forgotten since; nothing done
	AnswerGrown     = "grown"     // fold: the set has another number of members; nothing done
	AnswerReleased  = "released"  // release
	AnswerMapped    = "mapped"    // remap
	AnswerForgotten = "forgotten" // forget
	AnswerInFlight  = "in_flight" // forget: begun, and not marked, by an owner that lives
)

// MaxMembers is how many marks and touches one batch write may have together.
const MaxMembers = 4096

// Keys are the keys that every partition has.
type Keys struct{ Head, Own, Run string }

// Owner describes the owner that makes a call.
type Owner struct {
	Token      [16]byte
	Epoch      uint64
	MapVersion uint64
	// Seq is the largest Seq that a script has answered; see Reply.
	Seq   uint64
	Lease time.Duration
	// Slice is the length of a generation, in whole milliseconds. Keep is how long a member is kept
	// after its generation, at least: window plus hold.
	Slice, Keep time.Duration
}

// Claim asks for a partition.
type Claim struct {
	// Hold is how long the begins of a past epoch are kept.
	Hold time.Duration
	// Generation of the consumer group, or 0.
	Generation int32
	// TakeOver takes the partition from a lower generation whose lease still runs.
	TakeOver bool
	// Mine is the epoch that the caller had, if it continues what it began in that epoch. If the
	// partition still has that epoch, the ownership is unbroken. 0 means that the caller begins
	// anew.
	Mine uint64
}

// NewAcquire asks for a partition. It uses Token, MapVersion and Lease of self.
func NewAcquire(k Keys, self Owner, c Claim) Call {
	return Call{script: acquireScript, keys: []string{k.Head, k.Own, k.Run}, args: []any{
		string(self.Token[:]), Millis(self.Lease), Millis(c.Hold), c.Generation, bit(c.TakeOver),
		self.MapVersion, c.Mine,
	}}
}

// Field is a begun batch: a field of the partition's run.
type Field struct {
	// Name as FieldName makes it.
	Name string
	// Blob holds the ids in the form that the function Blob makes; the script puts the time in
	// front.
	Blob string
}

// FieldName names the n-th batch of an epoch. Every batch needs a name of its own, because a begin
// that is on record is never overwritten.
func FieldName(epoch, n uint64) string {
	return strconv.FormatUint(epoch, 10) + ":" + strconv.FormatUint(n, 10)
}

// Blob returns ids in the form that they have in a field: 8 bytes each, big-endian, with 0 as the
// lowest bit.
func Blob(ids ...int64) string {
	return encodeMembers(ids, done)
}

// Batch is what one batch write of an owner does.
type Batch struct {
	// Fresh is the key of the set that gets the marks and touches: fresh set N, counted from 1, of
	// generation Gen. Without marks and touches, these three fields are ignored.
	Fresh string
	Gen   int64
	N     uint64
	// Begin holds the fields of run to write, and Ended those to remove.
	Begin []Field
	Ended []string
	// Marks and Touches are ids, at most MaxMembers together.
	Marks, Touches []int64
}

// NewBatch renews the partition and does what the batch write says.
func NewBatch(k Keys, self Owner, t *Batch) Call {
	call := batchCall(batchScript, k, self, t, nil)
	if len(t.Begin) > 0 {
		rest := call
		call = batchCall(beginScript, k, self, t, t.Begin)
		call.rest = &rest
	}
	return call
}

func batchCall(s *script, k Keys, self Owner, t *Batch, begin []Field) Call {
	keys := []string{k.Head, k.Own, k.Run}
	if len(t.Marks)+len(t.Touches) > 0 {
		keys = append(keys, t.Fresh)
	}
	args := make([]any, 0, 12+2*len(begin)+len(t.Ended))
	args = append(args, string(self.Token[:]), self.Epoch, self.MapVersion,
		Millis(self.Lease), self.Seq,
		Millis(self.Slice), Millis(self.Keep), t.Gen, t.N, encodeMembers(t.Marks, done),
		encodeMembers(t.Touches, touched), len(begin))
	for _, f := range begin {
		args = append(args, f.Name, f.Blob)
	}
	for _, name := range t.Ended {
		args = append(args, name)
	}
	return Call{script: s, keys: keys, args: args}
}

// Fold moves members of a fresh set into buckets.
type Fold struct {
	// Fresh is the key of fresh set N of generation Gen: the oldest that is not folded.
	Fresh string
	Gen   int64
	N     uint64
	// Forgets is the number that a script answered before the set was read, and Count is the number
	// of the set's members.
	Forgets uint64
	Count   int
	// Buckets holds some members of the set, as they are in the set, by their buckets. A caller
	// that reads and folds the set again must put the members of each bucket in the same order, and
	// in one call. Then the script does not add them to the bucket again.
	Buckets []Fill
	// Last removes the set: earlier calls have folded all its other members.
	Last bool
}

// Fill is a bucket and what goes into it.
type Fill struct {
	Key     string
	Members []int64
}

// NewFold folds. It uses Epoch, Slice and Keep of self.
func NewFold(k Keys, self Owner, f *Fold) Call {
	keys := []string{k.Head, f.Fresh}
	args := []any{self.Epoch, f.Forgets, Millis(self.Slice), Millis(self.Keep), f.Gen, f.N,
		f.Count, bit(f.Last)}
	for _, b := range f.Buckets {
		keys = append(keys, b.Key)
		args = append(args, encodeMembers(b.Members, func(m int64) int64 { return m }))
	}
	return Call{script: foldScript, keys: keys, args: args}
}

// NewRelease gives the partition up, and removes the fields of run that ended names. It uses Token
// and Epoch of self.
func NewRelease(k Keys, self Owner, ended []string) Call {
	args := []any{string(self.Token[:]), self.Epoch}
	for _, name := range ended {
		args = append(args, name)
	}
	return Call{script: releaseScript, keys: []string{k.Head, k.Own, k.Run}, args: args}
}

// Remap tells a partition the version of its map.
type Remap struct {
	MapVersion uint64
	// Span is how long, at least, the partition is shared from now on, by its server's clock.
	Span time.Duration
	// Bear makes the head if there is none. With a Span, it also removes lost from the head.
	Bear bool
	// Lost writes into the head that members were lost, so nobody can acquire the partition any
	// more.
	Lost bool
}

// NewRemap tells a partition the version of its map.
func NewRemap(k Keys, m Remap) Call {
	return Call{script: remapScript, keys: []string{k.Head},
		args: []any{m.MapVersion, max(Millis(m.Span), 0), bit(m.Bear), bit(m.Lost)}}
}

// Forget forgets an id.
type Forget struct {
	ID int64
	// Token is the owner's token, if the owner forgets. The script then does not look in run,
	// because the fields of run are removed only as a whole, and the owner knows what it has in
	// flight.
	Token [16]byte
	// Gen and Newest have the same meaning as in Ask, and the values that were read in head.
	Gen    int64
	Newest uint64
	// Fresh has all sets that are not folded, and Buckets all buckets in which the id may be.
	Fresh, Buckets []Set
}

// Set is a set of a generation.
type Set struct {
	Key string
	Gen int64
}

// NewForget removes the mark of an id, and removes the id from the begins of earlier owners. It
// never removes the touch.
func NewForget(k Keys, e *Forget) Call {
	token := ""
	if e.Token != [16]byte{} {
		token = string(e.Token[:])
	}
	keys := []string{k.Head, k.Own, k.Run}
	args := []any{Blob(e.ID), token, e.Gen, e.Newest, len(e.Fresh)}
	for _, sets := range [][]Set{e.Fresh, e.Buckets} {
		for _, s := range sets {
			keys = append(keys, s.Key)
			args = append(args, s.Gen)
		}
	}
	return Call{script: forgetScript, keys: keys, args: args}
}

// Marked is the member of an id that is done.
func Marked(id int64) int64 { return done(id) }

// Touched is the member of an id for which the inner store must be asked.
func Touched(id int64) int64 { return touched(id) }

// done and touched return the two members of an id.
func done(id int64) int64    { return id &^ 1 }
func touched(id int64) int64 { return id | 1 }

// encodeMembers encodes members with 8 bytes each, because Lua's numbers are doubles, which cannot
// hold 64 bits.
func encodeMembers(ids []int64, member func(int64) int64) string {
	b := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		b = binary.BigEndian.AppendUint64(b, uint64(member(id))) // 64 bits either way
	}
	return string(b)
}

// Call is one script on the keys of one partition. The functions of this package make it. Its
// arguments are copies, never the caller's buffers: when a context ends, the pipeline that is left
// behind may still be sending them.
type Call struct {
	script *script
	keys   []string
	args   []any
	// rest is the call that is sent to a full server instead of this one; see [Runner.Run].
	rest *Call
	// reads holds the buckets that are read in the pipeline of the script; see [NewAsk].
	reads *Ask
}

// command is EVALSHA with the script's name, or EVAL with its text.
func (c Call) command(ctx context.Context, name, text string) *redis.Cmd {
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	args = append(args, name, text, len(c.keys))
	for _, key := range c.keys {
		args = append(args, key)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}
