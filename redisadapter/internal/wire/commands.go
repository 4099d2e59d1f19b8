package wire

import (
	"context"
	"encoding/base64"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
)

// Commands builds the plain commands of one pipeline with few allocations. All keys and
// values lie in one string, all arguments and commands in arrays. Texts are passed by pointer,
// because putting a string into an interface copies its header to the heap.
type Commands struct {
	*textBuffer          // nil when frozen
	Text        []string // texts that no command has taken yet
	args        []any
	cmds        []redis.StringCmd // not taken yet
	ms          int64
	msAs        any // ms, boxed: a batch has mostly one expiry
	arrays      *arrays
}

// arrays hold the commands of a pipeline. They are used again when its replies have been read, and
// never after a pipeline that was left behind.
type arrays struct {
	text []string
	args []any
	cmds []redis.StringCmd
	list []redis.Cmder
}

var arraysKept = sync.Pool{New: func() any { return new(arrays) }}

// textBuffer is the buffer for texts. It can be used again, because commands have a string that was
// copied from it.
type textBuffer struct {
	Buf  []byte
	ends []int // of each text in buf
}

var textBuffers = sync.Pool{New: func() any { return new(textBuffer) }}

const (
	argsPerCommand  = 7 // SET key value PX ms NX GET
	bytesPerCommand = 128
	// commandsKept bounds the commands of a pipeline whose arrays are kept for the next one.
	commandsKept   = 4096
	textBufferKept = commandsKept * bytesPerCommand
)

// NewCommands makes room for n commands.
func NewCommands(n int) *Commands {
	d, _ := textBuffers.Get().(*textBuffer)
	d.Buf, d.ends = slices.Grow(d.Buf[:0], n*bytesPerCommand), slices.Grow(d.ends[:0], 2*n)
	a, _ := arraysKept.Get().(*arrays)
	return &Commands{textBuffer: d, arrays: a}
}

// AppendKey appends the name of a record of the layout Full. The digest is in braces, so that its
// slot does not depend on the prefix and any key next to it shares that slot.
func AppendKey(b []byte, prefix string, id driver.ID) []byte {
	b = append(append(b, prefix...), ":{"...)
	b = base64.RawURLEncoding.AppendEncode(b, id[:])
	return append(b, '}')
}

// Key adds the name of a record of the layout Full.
func (b *Commands) Key(prefix string, id driver.ID) {
	b.Buf = AppendKey(b.Buf, prefix, id)
	b.End()
}

// End ends a text.
func (b *Commands) End() { b.ends = append(b.ends, len(b.Buf)) }

// Token adds a token.
func (b *Commands) Token(t driver.Token) {
	b.Buf = append(b.Buf, t[:]...)
	b.End()
}

// Value adds a record.
func (b *Commands) Value(r *Record) {
	b.Buf = AppendRecord(b.Buf, r)
	b.End()
}

// Freeze says that all texts are added. The commands take them in the order in which they were
// added.
func (b *Commands) Freeze(commands int) {
	d := b.textBuffer
	all := string(d.Buf)
	b.arrays.text = slices.Grow(b.arrays.text[:0], len(d.ends))[:len(d.ends)]
	b.Text = b.arrays.text
	begin := 0
	for i, end := range d.ends {
		b.Text[i], begin = all[begin:end], end
	}
	b.arrays.args = slices.Grow(b.arrays.args[:0], argsPerCommand*commands)
	b.args = b.arrays.args
	if b.textBuffer = nil; cap(d.Buf) <= textBufferKept {
		textBuffers.Put(d)
	}
}

// Take returns the next text.
func (b *Commands) Take() *string {
	t := &b.Text[0]
	b.Text = b.Text[1:]
	return t
}

// Arguments puts arguments into the common array.
func (b *Commands) Arguments(args ...any) []any {
	begin := len(b.args)
	b.args = append(b.args, args...)
	return b.args[begin:len(b.args):len(b.args)]
}

// Millis boxes an expiry. The least expiry that Redis knows is a millisecond.
func (b *Commands) Millis(ms int64) any {
	if b.msAs == nil || b.ms != ms {
		b.ms, b.msAs = ms, max(ms, 1)
	}
	return b.msAs
}

// SetClaim is SET key value PX ms NX GET: nil when the key was absent and is ours now,
// else what it holds. NX and GET together need Redis 7.0.
func (b *Commands) SetClaim(ctx context.Context, ms int64) *redis.StringCmd {
	return b.command(ctx, b.Arguments("set", b.Take(), b.Take(), "px", b.Millis(ms), "nx", "get"))
}

// SetDone is SET key value PX ms GET: it answers what it has overwritten.
func (b *Commands) SetDone(ctx context.Context, ms int64) *redis.StringCmd {
	return b.command(ctx, b.Arguments("set", b.Take(), b.Take(), "px", b.Millis(ms), "get"))
}

// Swap is SET key value PX ms IFEQ old: nil when the key holds anything else. It needs Valkey 8.1
// or Redis 8.4.
func (b *Commands) Swap(ctx context.Context, ms int64) *redis.StringCmd {
	return b.command(ctx, b.Arguments("set", b.Take(), b.Take(), "px", b.Millis(ms), "ifeq",
		b.Take()))
}

// MGet is GET of n keys at once.
func (b *Commands) MGet(ctx context.Context, n int) *redis.StringSliceCmd {
	args := append(make([]any, 0, n+1), "mget")
	for range n {
		args = append(args, b.Take())
	}
	return redis.NewStringSliceCmd(ctx, args...)
}

// Get is GET key.
func (b *Commands) Get(ctx context.Context) *redis.StringCmd {
	return b.command(ctx, b.Arguments("get", b.Take()))
}

// List returns an empty list with room for n commands, which may be appended to it.
func (b *Commands) List(n int) []redis.Cmder {
	b.arrays.list = slices.Grow(b.arrays.list[:0], n)
	b.arrays.cmds = slices.Grow(b.arrays.cmds[:0], n)[:n]
	b.cmds = b.arrays.cmds
	return b.arrays.list
}

// Release gives the arrays back. Nobody may look at the commands any more.
func (b *Commands) Release() {
	a := b.arrays
	b.arrays = nil
	if cap(a.cmds) > commandsKept {
		return
	}
	clear(a.text)
	clear(a.args[:len(b.args)])
	clear(a.cmds)
	clear(a.list[:len(a.cmds)])
	arraysKept.Put(a)
}

// command takes a command out of the array.
func (b *Commands) command(ctx context.Context, args []any) *redis.StringCmd {
	cmd := &b.cmds[0]
	b.cmds = b.cmds[1:]
	*cmd = *redis.NewStringCmd(ctx, args...)
	return cmd
}

// ValueOf returns the value of a command. A value counts more than the error: when a connection
// breaks in mid-pipeline, go-redis sets that error in all commands, even in those whose replies it
// has read. absent is true only for a reply that says so.
func ValueOf(cmd *redis.StringCmd) (value string, absent bool, err error) {
	value, err = cmd.Result()
	switch {
	case err == nil || value != "":
		return value, false, nil
	case err == redis.Nil: //nolint:errorlint // go-redis returns it as it is
		return "", true, nil
	}
	return "", false, err
}
