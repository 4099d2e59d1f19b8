package redisscript

import (
	"encoding/binary"
	"strconv"
	"time"
)

// The scripts of owned partitions. All keys of one call have one hash tag. A member stands
// for an id: 64 bits whose lowest says what the member means, 0 done and 1 touched. Ids are
// passed with either; the constructors set the bit. Members travel, and are stored, as 8
// bytes, the most significant first; see [ReadOwnMembers].
var (
	ownAcquireScript = loadAfter("own_acquire", "own")
	ownTurnScript    = loadAfter("own_turn", "own")
	// ownBeginScript is ownTurnScript for those that begin something: a server that is full refuses
	// it before it has done anything.
	ownBeginScript   = strict(ownTurnScript)
	ownAskScript     = loadAfter("own_ask", "own")
	ownFoldScript    = loadAfter("own_fold", "own")
	ownReleaseScript = loadAfter("own_release", "own")
	ownRemapScript   = loadAfter("own_remap", "own")
	ownForgetScript  = loadAfter("own_forget", "own")
)

// The answers of the scripts of owned partitions. The headers of the scripts say which of
// them each has, and what it has then done.
const (
	OwnDone      = "done"      // turn: all was done
	OwnAcquired  = "acquired"  // acquire: a new epoch
	OwnMine      = "mine"      // acquire: this token has it already, in the epoch it has
	OwnHeld      = "held"      // acquire: another holds it, for Left
	OwnRemapped  = "remapped"  // acquire: the map has another version
	OwnAmnesia   = "amnesia"   // there is no head, or it says that data were lost
	OwnStale     = "stale"     // the epoch is another; ask, forget: or the newest fresh set
	OwnEdge      = "edge"      // turn: another generation, or a set folded by now; nothing done
	OwnLapsed    = "lapsed"    // turn: the lease ran out and nobody came: no begins, no touches
	OwnShared    = "shared"    // turn: no begins; all else was done
	OwnBehind    = "behind"    // turn: the server has lost turns: no begins; all else was done
	OwnFull      = "full"      // turn: the server has no memory left: no begins; all else was done
	OwnFound     = "found"     // ask
	OwnFolded    = "folded"    // fold: done, now or before
	OwnForgot    = "forgot"    // fold: something was forgotten since; nothing done
	OwnGrown     = "grown"     // fold: the set has another number of members; nothing done
	OwnReleased  = "released"  // release
	OwnMapped    = "mapped"    // remap
	OwnForgotten = "forgotten" // forget
	OwnInFlight  = "in_flight" // forget: begun, and not marked, by an owner that lives
)

// OwnMost is how many marks and touches one turn may have together.
const OwnMost = 4096

// OwnKeys are the keys that every partition has.
type OwnKeys struct{ Head, Own, Run string }

// OwnSelf is the owner.
type OwnSelf struct {
	Token      [16]byte
	Epoch      uint64
	MapVersion uint64
	// Seq is the largest that a script has answered; see OwnReply.
	Seq   uint64
	Lease time.Duration
	// Slice is the length of a generation, in whole milliseconds; Keep how long a member
	// is kept after its generation at least: window and hold.
	Slice, Keep time.Duration
}

// OwnClaim asks for a partition.
type OwnClaim struct {
	// Hold is how long a begin of an epoch that is over is kept.
	Hold time.Duration
	// Generation of the consumer group, or 0.
	Generation int32
	// TakeOver takes the partition from a lower generation whose lease still runs.
	TakeOver bool
	// Mine is the epoch that the caller had, when he goes on with what he began in it: if the
	// partition still has it, his ownership is unbroken. 0: he begins anew.
	Mine uint64
}

// NewOwnAcquire asks for a partition. Of self it needs Token, MapVersion and Lease.
func NewOwnAcquire(k OwnKeys, self OwnSelf, c OwnClaim) Call {
	return ownCall(ownAcquireScript, []string{k.Head, k.Own, k.Run}, []any{
		string(self.Token[:]), Millis(self.Lease), Millis(c.Hold), c.Generation, bit(c.TakeOver),
		self.MapVersion, c.Mine,
	})
}

// OwnField is a begun batch: a field of the partition's run.
type OwnField struct {
	// Name as OwnFieldName makes it.
	Name string
	// Blob has the ids, as OwnBlob makes it; the script puts the time in front.
	Blob string
}

// OwnFieldName names the n-th batch of an epoch. Every batch needs another name: a begin
// that is on record is never overwritten.
func OwnFieldName(epoch, n uint64) string {
	return strconv.FormatUint(epoch, 10) + ":" + strconv.FormatUint(n, 10)
}

// OwnBlob is the form that ids have in a field: 8 bytes each, big-endian, the lowest bit 0.
func OwnBlob(ids ...int64) string {
	return ownMembers(ids, done)
}

// OwnTurn is what one turn of an owner does.
type OwnTurn struct {
	// Fresh is the key of fresh set N, from 1, of generation Gen: for the marks and
	// touches. Without any, the three are not looked at.
	Fresh string
	Gen   int64
	N     uint64
	// Begin and Ended are fields of run to write and to remove.
	Begin []OwnField
	Ended []string
	// Marks and Touches are ids, at most OwnMost together.
	Marks, Touches []int64
}

// NewOwnTurn renews the partition and does what the turn says.
func NewOwnTurn(k OwnKeys, self OwnSelf, t *OwnTurn) Call {
	call := turnCall(ownTurnScript, k, self, t, nil)
	if len(t.Begin) > 0 {
		rest := call
		call = turnCall(ownBeginScript, k, self, t, t.Begin)
		call.rest = &rest
	}
	return call
}

func turnCall(script *Script, k OwnKeys, self OwnSelf, t *OwnTurn, begin []OwnField) Call {
	keys := []string{k.Head, k.Own, k.Run}
	if len(t.Marks)+len(t.Touches) > 0 {
		keys = append(keys, t.Fresh)
	}
	args := make([]any, 0, 12+2*len(begin)+len(t.Ended))
	args = append(args, string(self.Token[:]), self.Epoch, self.MapVersion,
		Millis(self.Lease), self.Seq,
		Millis(self.Slice), Millis(self.Keep), t.Gen, t.N, ownMembers(t.Marks, done),
		ownMembers(t.Touches, touched), len(begin))
	for _, f := range begin {
		args = append(args, f.Name, f.Blob)
	}
	for _, name := range t.Ended {
		args = append(args, name)
	}
	return ownCall(script, keys, args)
}

// OwnFold moves members of a fresh set into buckets.
type OwnFold struct {
	// Fresh is the key of fresh set N of generation Gen: the oldest that is not folded.
	Fresh string
	Gen   int64
	N     uint64
	// Forgets as a script answered it before the set was read, and Count of its members.
	Forgets uint64
	Count   int
	// Buckets with some of its members, as they are in the set. Who reads the set again,
	// and folds it again, puts the members of a bucket in the same order, and in one call: then
	// they are not added to it again.
	Buckets []OwnFill
	// Last removes the set: all others of its members were folded by calls before.
	Last bool
}

// OwnFill is a bucket and what goes into it.
type OwnFill struct {
	Key     string
	Members []int64
}

// NewOwnFold folds. Of self it needs Epoch, Slice and Keep.
func NewOwnFold(k OwnKeys, self OwnSelf, f *OwnFold) Call {
	keys := []string{k.Head, f.Fresh}
	args := []any{self.Epoch, f.Forgets, Millis(self.Slice), Millis(self.Keep), f.Gen, f.N,
		f.Count, bit(f.Last)}
	for _, b := range f.Buckets {
		keys = append(keys, b.Key)
		args = append(args, ownMembers(b.Members, func(m int64) int64 { return m }))
	}
	return ownCall(ownFoldScript, keys, args)
}

// NewOwnRelease gives the partition up, and removes fields of run. Of self it needs Token
// and Epoch.
func NewOwnRelease(k OwnKeys, self OwnSelf, ended []string) Call {
	args := []any{string(self.Token[:]), self.Epoch}
	for _, name := range ended {
		args = append(args, name)
	}
	return ownCall(ownReleaseScript, []string{k.Head, k.Own, k.Run}, args)
}

// OwnRemap tells a partition of its map.
type OwnRemap struct {
	MapVersion uint64
	// Span is how long the partition is shared at least, from now by its server's clock.
	Span time.Duration
	// Bear makes the head where there is none, and with a Span takes Lost out.
	Bear bool
	// Lost writes down that members were lost: the partition cannot be acquired any more.
	Lost bool
}

// NewOwnRemap tells a partition of its map.
func NewOwnRemap(k OwnKeys, m OwnRemap) Call {
	return ownCall(ownRemapScript, []string{k.Head},
		[]any{m.MapVersion, max(Millis(m.Span), 0), bit(m.Bear), bit(m.Lost)})
}

// OwnForget forgets an id.
type OwnForget struct {
	ID int64
	// Token of the owner, when it is the owner who forgets: then run is not looked at, for
	// its fields go only as a whole, and the owner knows what it has in flight.
	Token [16]byte
	// Gen and Newest as in OwnAsk, and as they were read in head.
	Gen    int64
	Newest uint64
	// Fresh are all sets that are not folded, Buckets all in which the id may be.
	Fresh, Buckets []OwnSet
}

// OwnSet is a set of a generation.
type OwnSet struct {
	Key string
	Gen int64
}

// NewOwnForget removes the mark of an id, and the id from what owners that are gone had begun;
// never its touch.
func NewOwnForget(k OwnKeys, e *OwnForget) Call {
	token := ""
	if e.Token != [16]byte{} {
		token = string(e.Token[:])
	}
	keys := []string{k.Head, k.Own, k.Run}
	args := []any{OwnBlob(e.ID), token, e.Gen, e.Newest, len(e.Fresh)}
	for _, sets := range [][]OwnSet{e.Fresh, e.Buckets} {
		for _, s := range sets {
			keys = append(keys, s.Key)
			args = append(args, s.Gen)
		}
	}
	return ownCall(ownForgetScript, keys, args)
}

// OwnMarked is the member of one that is done.
func OwnMarked(id int64) int64 { return done(id) }

// OwnTouched is the member of one whose inner store is to be asked.
func OwnTouched(id int64) int64 { return touched(id) }

// done and touched are the two members of an id.
func done(id int64) int64    { return id &^ 1 }
func touched(id int64) int64 { return id | 1 }

// ownMembers is how members travel: 8 bytes each. Lua's numbers are doubles, which do not hold
// 64 bits.
func ownMembers(ids []int64, member func(int64) int64) string {
	b := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		b = binary.BigEndian.AppendUint64(b, uint64(member(id))) // 64 bits either way
	}
	return string(b)
}

func ownCall(s *Script, keys []string, args []any) Call {
	many := make([]any, len(keys))
	for i, key := range keys {
		many[i] = key
	}
	return Call{Script: s, Key: keys[0], many: many, Args: args}
}
