package script_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
)

// Generations of a test are so long that none ends while it runs.
const (
	slice     = 1000 * time.Hour
	keep      = 4000 * time.Hour
	leaseTime = time.Hour
	hold      = 24 * time.Hour
)

// part is a partition of a test, with an owner.
type part struct {
	t      *testing.T
	client redis.UniversalClient
	runner *script.Runner
	keys   script.Keys
	self   script.Owner
	g      int64 // by the server's clock
}

// newPart has keys of its own, and nothing in them.
func newPart(t *testing.T, b redistest.Backend, name string) *part {
	p := b.Prefix + ":{" + name + "}:"
	return &part{
		t: t, client: b.Client, runner: script.NewRunner(b.Client),
		keys: script.Keys{Head: p + "head", Own: p + "own", Run: p + "run"},
		self: script.Owner{Token: [16]byte{1}, MapVersion: 1, Lease: leaseTime, Slice: slice,
			Keep: keep},
	}
}

// held is a partition that was born and acquired.
func held(t *testing.T, b redistest.Backend, name string) *part {
	t.Helper()
	p := newPart(t, b, name)
	born := p.want(script.AnswerMapped,
		script.NewRemap(p.keys, script.Remap{MapVersion: 1, Bear: true}))
	p.g = int64(born.Now / slice)
	p.acquire()
	return p
}

func (p *part) call(c script.Call) script.Reply {
	p.t.Helper()
	r := p.runner.Run(p.t.Context(), []script.Call{c})[0]
	require.NoError(p.t, r.Err)
	return r
}

func (p *part) want(answer string, c script.Call) script.Reply {
	p.t.Helper()
	r := p.call(c)
	require.Equal(p.t, answer, r.Answer)
	return r
}

func (p *part) acquire() script.Reply {
	p.t.Helper()
	r := p.want(script.AnswerAcquired,
		script.NewAcquire(p.keys, p.self, script.Claim{Hold: hold}))
	p.self.Epoch, p.self.Seq = r.Epoch, r.Seq
	return r
}

// fresh and bucket are the keys of sets of the newest generation.
func (p *part) fresh(n int) string { return p.set("f", p.g, n) }

func (p *part) bucket(i int) string { return p.set("b", p.g, i) }

func (p *part) set(kind string, g int64, n int) string {
	return fmt.Sprintf("%s:%s:%d:%d", p.keys.Head, kind, g, n)
}

// turn is one batch write of the newest generation, into fresh set n.
func (p *part) turn(n int, marks, touches []int64) *script.Batch {
	return &script.Batch{Fresh: p.fresh(n), Gen: p.g, N: uint64(n), Marks: marks,
		Touches: touches}
}

func (p *part) mark(n int, ids ...int64) {
	p.t.Helper()
	p.want(script.AnswerDone, script.NewBatch(p.keys, p.self, p.turn(n, ids, nil)))
}

// begin puts a batch on record and returns its field.
func (p *part) begin(n uint64, ids ...int64) string {
	p.t.Helper()
	f := script.Field{Name: script.FieldName(p.self.Epoch, n),
		Blob: script.Blob(ids...)}
	p.want(script.AnswerDone,
		script.NewBatch(p.keys, p.self,
			&script.Batch{Begin: []script.Field{f}}))
	return f.Name
}

// rawMembers is what is stored of members.
func rawMembers(members ...int64) string {
	var b []byte
	for _, m := range members {
		b = binary.BigEndian.AppendUint64(b, uint64(m))
	}
	return string(b)
}

// lapse ends the lease.
func (p *part) lapse() { p.must(p.client.Del(p.t.Context(), p.keys.Own).Err()) }

func (p *part) must(err error) {
	p.t.Helper()
	require.NoError(p.t, err)
}

// head is what head holds.
func (p *part) head() *script.State {
	p.t.Helper()
	h, err := script.ReadHead(p.client.HGetAll(p.t.Context(), p.keys.Head).Val())
	p.must(err)
	return h
}

// poke writes fields of head past the scripts.
func (p *part) poke(fields ...any) {
	p.must(p.client.HSet(p.t.Context(), p.keys.Head, fields...).Err())
}

// begun is what run holds: the ids of each field.
func (p *part) begun() map[string][]int64 {
	p.t.Helper()
	all, err := script.ReadRun(p.client.HGetAll(p.t.Context(), p.keys.Run).Val())
	p.must(err)
	ids := make(map[string][]int64)
	for _, b := range all {
		ids[b.Name] = b.IDs
	}
	return ids
}

// members are those of a set or a bucket, in order.
func (p *part) members(key string) []int64 {
	p.t.Helper()
	var all []int64
	read := func(s string) {
		some, err := script.ReadMembers(s)
		p.must(err)
		all = append(all, some...)
	}
	if p.client.Type(p.t.Context(), key).Val() == "string" { // a bucket
		read(p.client.Get(p.t.Context(), key).Val())
	}
	for _, s := range p.client.SMembers(p.t.Context(), key).Val() {
		read(s)
	}
	slices.Sort(all)
	return all
}

func (p *part) wantMembers(key string, want ...int64) {
	p.t.Helper()
	assert.Equal(p.t, want, p.members(key), key)
}

// lease is what the lease has left.
func (p *part) lease() time.Duration { return p.client.PTTL(p.t.Context(), p.keys.Own).Val() }

// shorten makes the lease so short that a renewal is seen.
func (p *part) shorten() {
	p.must(p.client.PExpire(p.t.Context(), p.keys.Own, leaseTime/2).Err())
}

func (p *part) renewed() bool { return p.lease() > leaseTime/2 }

// dump returns what the partition's keys and these sets hold, but not when they expire.
func (p *part) dump(sets ...string) string {
	ctx := p.t.Context()
	out := fmt.Sprint(p.client.HGetAll(ctx, p.keys.Head).Val(),
		p.client.HGetAll(ctx, p.keys.Run).Val(), p.client.Get(ctx, p.keys.Own).Val())
	for _, key := range sets {
		out += fmt.Sprint(" ", p.members(key))
	}
	return out
}

// unchanged reports an error when f changes anything.
func (p *part) unchanged(f func(), sets ...string) {
	p.t.Helper()
	before := p.dump(sets...)
	f()
	assert.Equal(p.t, before, p.dump(sets...))
}

// each runs a story on every kind of Redis.
func each(t *testing.T, story func(t *testing.T, b redistest.Backend)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) { story(t, b) })
}
