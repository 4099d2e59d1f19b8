package redisadapter

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// commandBuilder builds the plain commands of one pipeline with few allocations. All keys and
// values lie in one string, all arguments and commands in arrays. Texts are passed by pointer,
// because putting a string into an interface copies its header to the heap.
type commandBuilder struct {
	*textBuffer          // nil when frozen
	text        []string // texts that no command has taken yet
	args        []any
	cmds        []redis.StringCmd // that nobody has taken yet
	ms          int64
	msAs        any // ms, boxed: a batch has mostly one expiry
}

// textBuffer is what texts are written into. It is used again: a command has the string that is
// made of it.
type textBuffer struct {
	buf  []byte
	ends []int // of each text in buf
}

var textBuffers = sync.Pool{New: func() any { return new(textBuffer) }}

const (
	argsPerCommand  = 7 // SET key value PX ms NX GET
	bytesPerCommand = 128
	commandsAtOnce  = 64
	// textBufferKept bounds the textBuffer that is kept for the next pipeline.
	textBufferKept = 4096 * bytesPerCommand
)

// newCommandBuilder makes room for n commands.
func newCommandBuilder(n int) *commandBuilder {
	d, _ := textBuffers.Get().(*textBuffer)
	d.buf, d.ends = slices.Grow(d.buf[:0], n*bytesPerCommand), slices.Grow(d.ends[:0], 2*n)
	return &commandBuilder{textBuffer: d}
}

// key adds the name of a record.
func (b *commandBuilder) key(s *Store, id dedup.ID) {
	b.buf = s.appendKey(b.buf, id)
	b.end()
}

// end ends a text.
func (b *commandBuilder) end() { b.ends = append(b.ends, len(b.buf)) }

// token adds a token.
func (b *commandBuilder) token(t dedup.Token) {
	b.buf = append(b.buf, t[:]...)
	b.end()
}

// value adds a record.
func (b *commandBuilder) value(r *wire.Record) {
	b.buf = wire.AppendRecord(b.buf, r)
	b.end()
}

// freeze ends the adding of texts. The commands take them in the order they were added.
func (b *commandBuilder) freeze(commands int) {
	d := b.textBuffer
	all := string(d.buf)
	b.text = make([]string, len(d.ends))
	begin := 0
	for i, end := range d.ends {
		b.text[i], begin = all[begin:end], end
	}
	b.args = make([]any, 0, argsPerCommand*commands)
	if b.textBuffer = nil; cap(d.buf) <= textBufferKept {
		textBuffers.Put(d)
	}
}

// take returns the next text.
func (b *commandBuilder) take() *string {
	t := &b.text[0]
	b.text = b.text[1:]
	return t
}

// arguments puts arguments into the common array.
func (b *commandBuilder) arguments(args ...any) []any {
	begin := len(b.args)
	b.args = append(b.args, args...)
	return b.args[begin:len(b.args):len(b.args)]
}

// millis boxes an expiry; Redis knows none below a millisecond.
func (b *commandBuilder) millis(ms int64) any {
	if b.msAs == nil || b.ms != ms {
		b.ms, b.msAs = ms, max(ms, 1)
	}
	return b.msAs
}

// setClaim is SET key value PX ms NX GET: nil when the key was absent and is ours now,
// else what it holds. NX and GET together need Redis 7.0.
func (b *commandBuilder) setClaim(ctx context.Context, ms int64) *redis.StringCmd {
	return b.command(ctx, b.arguments("set", b.take(), b.take(), "px", b.millis(ms), "nx", "get"))
}

// setDone is SET key value PX ms GET: it answers what it has overwritten.
func (b *commandBuilder) setDone(ctx context.Context, ms int64) *redis.StringCmd {
	return b.command(ctx, b.arguments("set", b.take(), b.take(), "px", b.millis(ms), "get"))
}

// get is GET key.
func (b *commandBuilder) get(ctx context.Context) *redis.StringCmd {
	return b.command(ctx, b.arguments("get", b.take()))
}

// command takes a command out of the array, which is made anew when it is used up.
func (b *commandBuilder) command(ctx context.Context, args []any) *redis.StringCmd {
	if len(b.cmds) == 0 {
		left := (cap(b.args) - len(b.args) + len(args)) / argsPerCommand
		b.cmds = make([]redis.StringCmd, min(max(left, 1), commandsAtOnce))
	}
	cmd := &b.cmds[0]
	b.cmds = b.cmds[1:]
	*cmd = *redis.NewStringCmd(ctx, args...)
	return cmd
}

// mget is one MGET for all the looks of a round.
func (b *commandBuilder) mget(ctx context.Context, round []step, n int) *redis.StringSliceCmd {
	args := append(make([]any, 0, n+1), "mget")
	for range n {
		args = append(args, b.take())
	}
	cmd := redis.NewStringSliceCmd(ctx, args...)
	nth := 0
	for i := range round {
		if round[i].kind == look {
			round[i].many, round[i].nth = cmd, nth
			nth++
		}
	}
	return cmd
}

// valueOf returns the value of a command. It comes before the error: when a connection
// breaks in mid-pipeline, go-redis marks all its commands with that, also those whose
// replies it has read. absent is true only for a reply that says so.
func valueOf(cmd *redis.StringCmd) (value string, absent bool, err error) {
	value, err = cmd.Result()
	switch {
	case err == nil || value != "":
		return value, false, nil
	case err == redis.Nil: //nolint:errorlint // go-redis returns it as it is
		return "", true, nil
	}
	return "", false, err
}

// appendKey appends the name of a record. The digest is in braces, so that its slot does not depend
// on the prefix and any key next to it shares that slot.
func (s *Store) appendKey(b []byte, id dedup.ID) []byte {
	if s.buckets != nil {
		return s.buckets.appendLease(b, s.buckets.place(id), id)
	}
	b = append(append(b, s.opts.Prefix...), ":{"...)
	b = base64.RawURLEncoding.AppendEncode(b, id[:])
	return append(b, '}')
}

// claimable reports whether a claim of an absent key may carry a fence of our own making.
//
// It must be larger than every fence the key ever had. A claim that we send now and that is
// executed at the very end of its lease may meet a key that was claimed and done, or released, and
// forgotten meanwhile. That takes a record that lives for less than the lease minus the time by
// which the clock may be behind. On our side the lease is cut short by its margin of 1 % and 2 ms,
// and a record lives for at least a lease. So a clock that is behind by less than the margin is
// good enough.
func claimable(r *dedup.ClaimRequest, at wire.Reading) bool {
	return at.Known() && r.Hold >= r.Lease && at.Error < r.Lease/100+2*time.Millisecond
}

// claimRecord is what an absent key becomes.
func claimRecord(r *dedup.ClaimRequest, at wire.Reading) wire.Record {
	return wire.Record{
		State: redisscript.InProgress, Fence: at.Fence(), Attempt: 1,
		Span: uint64(redisscript.Millis(r.Hold)), Owner: r.Token,
		Fingerprint: r.Fingerprint, Origin: r.Origin, Label: r.Label,
	}
}

// acquired is the answer to a claim that found nothing.
func acquired(r *dedup.ClaimRequest, at wire.Reading) dedup.Answer {
	return dedup.Answer{Outcome: dedup.Acquired, Record: dedup.Record{
		State: dedup.StateInProgress, Attempt: 1, Fence: at.Fence(), Remaining: r.Lease,
		Fingerprint: r.Fingerprint, Origin: digested(r.Origin), Label: r.Label,
	}}
}

// digested is an origin as a store gives it back.
func digested(o dedup.Origin) dedup.Origin {
	if o.Source != "" {
		o.Source, o.SourceDigest = "", o.Digest()
	}
	return o
}

// completable reports whether a completion may overwrite whatever is there: the effect has
// happened, so "done" is true whoever holds the key, and a Deduper without results writes no record
// that is worth more than another. A value that it must not overwrite is put back by restore. To
// make that very rare, a completion whose claim has ended by our clock, and may meet the next
// owner's claim, goes to the script.
func (s *Store) completable(c *dedup.Finish, at wire.Reading) bool {
	return c.SeenOnly && c.Result == nil && at.Known() && c.Landed && c.Fence != 0 &&
		c.State == dedup.StateSucceeded && c.Window > 0 &&
		time.Now().Before(c.Until)
}

// doneRecord is what a key becomes by a plain completion.
func doneRecord(c *dedup.Finish, at wire.Reading) wire.Record {
	return wire.Record{
		State: redisscript.Succeeded, Fence: c.Fence, Attempt: uint32(c.Attempt),
		Span: uint64(max(at.Millis(), 0)), Kept: uint64(max(redisscript.Millis(c.Window), 1)),
		Owner:    wire.FirstHalf(c.Token),
		NoResult: c.NoResult, Fingerprint: c.Fingerprint, Origin: c.Origin, Label: c.Label,
	}
}

// doneView is a doneRecord as callers see it.
func doneView(c *dedup.Finish) dedup.Record {
	return dedup.Record{
		State: dedup.StateSucceeded, Attempt: c.Attempt, Fence: c.Fence, NoResult: c.NoResult,
		Fingerprint: c.Fingerprint, Origin: digested(c.Origin), Label: c.Label, Remaining: c.Window,
	}
}

// claimOf reports whether a value is the claim of a change, which has a fence. It looks at nothing
// else: nearly every completion overwrites its own claim, which is not worth decoding.
func claimOf(value string, c *dedup.Finish) bool {
	return len(value) >= wire.HeaderSize+wire.OwnerRest && value[0] == wire.RecordVersion &&
		value[1] == redisscript.InProgress &&
		value[wire.OwnerAt:wire.OwnerAt+len(c.Token)] == string(c.Token[:]) &&
		binary.BigEndian.Uint64([]byte(value[wire.FenceAt:wire.FenceAt+8])) == c.Fence
}
