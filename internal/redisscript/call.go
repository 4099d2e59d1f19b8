package redisscript

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Call is one script on one key. Make it with the functions below, which know the order of each
// script's arguments. The arguments are copies, never the caller's buffers: a pipeline that was
// abandoned when its context ended may still be sending them.
type Call struct {
	Script *Script
	Key    string
	// Buckets that belong to the key; see Call.In.
	Buckets []string
	Args    []any
	// many are the keys of a call that has several, instead of Key.
	many []any
	// If the call may put the record past its point of no return, danger is how long the record is
	// then kept, and lease is the lease of its claim. Otherwise both are zero.
	danger, lease time.Duration
}

// keys are the KEYS of the script.
func (c *Call) keys() []string {
	return append([]string{c.Key}, c.Buckets...)
}

// first is the first of the keys.
func (c *Call) first() string {
	if c.many == nil {
		return c.Key
	}
	key, _ := c.many[0].(*string)
	return *key
}

// Buckets are the sets that may have a digest, one per generation and all in the slot of the
// key, as bucket.lua describes them.
type Buckets struct {
	// Keys of the buckets, from generation First on, without a gap.
	Keys  []string
	First int64
	// Member is the digest.
	Member string
	// Window is the length of a generation. Skew is how much the clocks of two servers may
	// differ.
	Window, Skew time.Duration
}

// In returns the call that also looks into the buckets. It is for Claim, Finish, Lookup,
// Forget and Restore.
func (c Call) In(b *Buckets) Call {
	c.Buckets = b.Keys
	c.Args = append(c.Args, b.Member, b.First, Millis(b.Window), Millis(b.Skew))
	if c.Script == Finish {
		c.Args = append(c.Args, "", 0, 0)
	}
	return c
}

// Above changes a call of Forget that has its buckets: for a member, which has no fence, the call
// then keeps a fence of at least this value.
func (c Call) Above(fence uint64) Call {
	c.Args = append(c.Args, fence)
	return c
}

// Into changes a call of Finish that has its buckets: the call then adds to the bucket of a
// generation instead of writing a record. If receipt is positive, it also leaves a record for that
// long. Added says that an earlier command has already added the member.
func (c Call) Into(generation int64, receipt time.Duration, added bool) Call {
	n := len(c.Args) - 3
	c.Args = append(c.Args[:n:n], generation, max(Millis(receipt), 0), bit(added))
	return c
}

// evalSHA names the script, and eval carries its text, for a server that has not seen it.
func (c Call) evalSHA(ctx context.Context, plain bool, index *Index) *redis.Cmd {
	return c.command(ctx, "evalsha", c.Script.source(plain).sha, index)
}

func (c Call) eval(ctx context.Context, plain bool, index *Index) *redis.Cmd {
	return c.command(ctx, "eval", c.Script.source(plain).text, index)
}

func (c Call) command(ctx context.Context, name, script string, index *Index) *redis.Cmd {
	keys := c.many
	if keys == nil {
		for _, key := range c.keys() {
			keys = append(keys, key)
		}
	}
	if index != nil && c.Script.inIndex {
		keys = append(keys[:len(keys):len(keys)], index.Of(c.first()))
	}
	args := make([]any, 0, 3+len(keys)+len(c.Args))
	args = append(append(args, name, script, len(keys)), keys...)
	cmd := redis.NewCmd(ctx, append(args, c.Args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// The states of a record, as they are stored. They are never renumbered.
const (
	InProgress = 1
	Succeeded  = 2
	Failed     = 3
	Released   = 4
	Uncertain  = 5
)

// ClaimArgs are the arguments of [Claim].
type ClaimArgs struct {
	Token       [16]byte
	Lease, Hold time.Duration
	// Fingerprint and Origin are sections of the record, or empty.
	Fingerprint, Origin string
	Label               string
	// TakeUncertain, TakeOverOlderGeneration and OnlyNew: see driver.ClaimRequest.
	TakeUncertain, TakeOverOlderGeneration, OnlyNew bool
	// Plain says that the end may overwrite without comparing; see driver.Finish.MayOverwrite.
	Plain bool
	// Asks: see driver.Resolvable.ClaimUncertain.
	Asks bool
}

// NewClaim asks for a key.
func NewClaim(key string, a *ClaimArgs) Call {
	return Call{Script: Claim, Key: key, Args: []any{
		string(a.Token[:]), Millis(a.Lease), Millis(a.Hold), a.Fingerprint, a.Origin, a.Label,
		bit(a.TakeUncertain), bit(a.TakeOverOlderGeneration), bit(a.OnlyNew),
		bit(a.Plain), bit(a.Asks),
	}}
}

// NewRenew makes the lease of a claim last from now on, and does nothing else.
func NewRenew(key string, token [16]byte, lease, hold time.Duration) Call {
	return NewDeclare(key, &RenewArgs{Token: token, Lease: lease, Hold: hold})
}

// RenewArgs are the arguments of [Renew].
type RenewArgs struct {
	Token       [16]byte
	Lease, Hold time.Duration
	// Irreversible declares that the irreversible part begins. A key with danger is kept for
	// at least Window.
	Irreversible bool
	Window       time.Duration
	// Steps replaces the stored steps, unless it is empty or shorter.
	Steps []byte
	// Fence of the claim, or 0.
	Fence uint64
}

// NewDeclare does what NewRenew does, and also records how far the attempt has come.
func NewDeclare(key string, a *RenewArgs) Call {
	danger := max(a.Window, a.Lease+a.Hold)
	if !a.Irreversible {
		danger = 0
	}
	return Call{Script: Renew, Key: key, danger: danger, lease: a.Lease, Args: []any{
		string(a.Token[:]), Millis(a.Lease), Millis(a.Hold), bit(a.Irreversible),
		max(Millis(a.Window), 0), string(a.Steps), a.Fence,
	}}
}

// FinishArgs are the arguments of [Finish].
type FinishArgs struct {
	Token [16]byte
	// State to reach: Succeeded, Failed or Released.
	State byte
	// Keep is how long the record is remembered; at least a millisecond, since Redis
	// knows no shorter expiry.
	Keep time.Duration
	// EffectApplied, Fence and Attempt: see driver.Finish.
	EffectApplied bool
	Fence         uint64
	Attempt       int
	// Fingerprint and Origin are sections of the record, or empty.
	Fingerprint, Origin string
	Label               string
	NoResult            bool
	// Result is nil when there is none.
	Result []byte
	// Uncertain is the least time for which the record is kept when it ends as uncertain.
	Uncertain time.Duration
	// NotStarted and NotAttempted: see driver.Finish.
	NotStarted, NotAttempted bool
}

// NewFinish ends an attempt.
func NewFinish(key string, a *FinishArgs) Call {
	return Call{Script: Finish, Key: key, Args: []any{
		string(a.Token[:]), a.State, max(Millis(a.Keep), 1), bit(a.EffectApplied), a.Fence,
		a.Attempt,
		bit(a.NoResult), a.Fingerprint, a.Origin, a.Label, bit(a.Result != nil), string(a.Result),
		max(Millis(a.Uncertain), 1), bit(a.NotStarted), bit(a.NotAttempted),
	}}
}

// CompleteItem is one claim of a [Complete]. The texts are passed by pointer because putting
// a string into an interface copies its header to the heap.
type CompleteItem struct{ Key, Token, Record *string }

// NewComplete writes the records of claims whose owners still hold them, and keeps each
// record for keep. sections says which of the sections fingerprint, origin and labels all of
// the records have: their flags, divided by 0x20. The keys must be on one server, or in one
// slot.
//
// The reply's Record has a '1' for each item that was written, and a '0' for one that Finish
// has to look at.
func NewComplete(items []CompleteItem, keep time.Duration, sections int) Call {
	keys, args := make([]any, len(items)), make([]any, 0, 2+2*len(items))
	args = append(args, max(Millis(keep), 1), sections)
	for i := range items {
		keys[i] = items[i].Key
		args = append(args, items[i].Token, items[i].Record)
	}
	return Call{Script: Complete, many: keys, Args: args}
}

// NewLookup reads a key.
func NewLookup(key string) Call { return Call{Script: Lookup, Key: key} }

// NewForget makes a key claimable from attempt 1. The fence stays for keep, and for at least
// 2 ms: long enough for the clock, from which the next fence starts, to advance.
func NewForget(key string, keep time.Duration) Call {
	return Call{Script: Forget, Key: key, Args: []any{max(Millis(keep), 2)}}
}

// NewRestore replaces written with old, or writes old if written is empty and the key is
// absent. The record stays for keep, or forever when keep is 0. In buckets it also removes
// the member.
func NewRestore(key, written, old string, keep time.Duration) Call {
	return Call{Script: Restore, Key: key, Args: []any{written, old, Millis(keep)}}
}

// keepForgets is how long the number of [Forgets] is kept: long enough not to matter.
const keepForgets = 30 * 24 * time.Hour

// NewForgets reads the number that counts every Forget, or changes it. It needs another
// random number each time.
func NewForgets(key string, random uint64, change bool) Call {
	return Call{Script: Forgets, Key: key,
		Args: []any{strconv.FormatUint(random, 10), bit(change), Millis(keepForgets)}}
}

// newEnter enters the record of a call in the index, before the call is sent without it.
func (c *Call) newEnter(index *Index) Call {
	id := strings.TrimSuffix(c.Key, "}")
	return Call{Script: Enter, Key: index.Of(c.Key), Args: []any{
		id[strings.LastIndexAny(id, "{:")+1:], Millis(c.danger), Millis(c.lease),
	}}
}

// NewReindex makes the index agree with a record.
func NewReindex(key string) Call { return Call{Script: Reindex, Key: key} }

// NewDrop gives up the lease that token holds.
func NewDrop(key string, token [16]byte) Call {
	return Call{Script: Drop, Key: key, Args: []any{string(token[:])}}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
