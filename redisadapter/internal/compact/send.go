package compact

import (
	"context"
	"iter"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// send makes one round, and returns at the latest when ctx ends.
func (t *exchange) send(ctx context.Context, round []bucketStep) error {
	var calls []redisscript.Call
	for i := range round {
		if round[i].scripted() {
			calls = append(calls, t.callOf(&round[i]))
		}
	}
	plain := t.commands(ctx, round)
	looks := t.Canaries.Round(t.claimsIn(round))
	replies, err := t.Line.Bounded(ctx, t.Why, func() []redisscript.Reply {
		return t.sendBeside(ctx, calls, plain, looks)
	})
	if err != nil {
		return err
	}
	t.Canaries.Add(looks)
	t.keepReads()
	for i := range round {
		if round[i].scripted() {
			round[i].reply, replies = replies[0], replies[1:]
		}
	}
	return nil
}

// claimsIn yields the requests that a round is about.
func (t *exchange) claimsIn(round []bucketStep) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range round {
			switch st := &round[i]; st.kind {
			case lookFirst, claimLease, claimWithScript, claimApart:
				if !yield(st.item) {
					return
				}
			}
		}
	}
}

// plainCommands are the commands of a round; the commands of an item are next to each other.
type plainCommands struct {
	cmds []redis.Cmder
	// keys has for each command a key of its slot.
	keys []string
	// apart are sent by the client of the Cluster, not by those of its nodes.
	apart []redis.Cmder
}

// sendBeside sends scripts and plain commands. One server gets one pipeline. Each node of a Cluster
// gets one pipeline with its plain commands, and the client of the Cluster sends one with the
// scripts.
//
// A node is asked by its own client. The client of the Cluster would follow redirections
// command by command, while a slot is being moved, and the membership might be read
// before the lease was ours.
func (t *exchange) sendBeside(ctx context.Context, calls []redisscript.Call, plain plainCommands,
	looks *guard.Looks) []redisscript.Reply {
	last := looks.Queue(ctx)
	cluster := t.Guard.Cluster
	switch {
	case cluster == nil:
		return t.Line.Runner.Send(ctx, calls, plain.cmds, last)
	case len(plain.cmds) == 0:
		return t.Line.Runner.Send(ctx, calls, plain.apart, last)
	}
	if last != nil {
		for i, cmd := range last() {
			plain.cmds, plain.keys = append(plain.cmds, cmd),
				append(plain.keys, looks.G.Keys[looks.Need[i]])
		}
	}
	var nodes sync.WaitGroup
	for node, cmds := range byNode(ctx, cluster, plain) {
		nodes.Go(func() {
			t.Line.Runner.On(node).Send(ctx, nil, cmds, nil)
		})
	}
	var replies []redisscript.Reply
	if len(calls)+len(plain.apart) > 0 {
		replies = t.Line.Runner.Send(ctx, calls, plain.apart, last)
	}
	nodes.Wait()
	return replies
}

// byNode groups commands by the master that serves their slot, in their order. Commands for a slot
// that no master serves get an error that says so.
func byNode(ctx context.Context, cluster *redis.ClusterClient,
	plain plainCommands) map[*redis.Client][]redis.Cmder {
	nodes := make(map[*redis.Client][]redis.Cmder, 8)
	var node *redis.Client
	var err error
	for i, cmd := range plain.cmds {
		if i == 0 || plain.keys[i] != plain.keys[i-1] {
			node, err = cluster.MasterForKey(ctx, plain.keys[i])
		}
		if err != nil {
			cmd.SetErr(err)
			continue
		}
		nodes[node] = append(nodes[node], cmd)
	}
	return nodes
}

// bucketRead is a bucket that is read as a whole, for the filter.
type bucketRead struct {
	into *filteredBucket
	cmd  *redis.StringSliceCmd
}

// commands builds the plain commands of a round.
func (t *exchange) commands(ctx context.Context, round []bucketStep) plainCommands {
	n, single := 0, 0
	for i := range round {
		if !round[i].scripted() {
			n++
		}
		if round[i].single() {
			single++
		}
	}
	if n == 0 {
		return plainCommands{}
	}
	width := int(t.view.last-t.view.first) + 1
	room := single * (width + 1)
	b := wire.NewCommands(room)
	t.reads, t.leases = nil, nil
	for i := range round {
		t.write(b, &round[i])
	}
	b.Freeze(room)
	out := plainCommands{cmds: make([]redis.Cmder, 0, room+1), keys: make([]string, 0, room+1)}
	for i := range round {
		if st := &round[i]; st.single() {
			key := b.Text[0]
			t.command(ctx, b, st)
			add := out.add
			if st.apart {
				add = func(_ string, cmd redis.Cmder) { out.apart = append(out.apart, cmd) }
			}
			if st.cmd != nil {
				add(key, st.cmd)
			}
			for _, cmd := range st.seen {
				add(key, cmd)
			}
			t.readWhole(ctx, st, &out, n)
		}
	}
	t.together(ctx, round, &out)
	return out
}

func (p *plainCommands) add(key string, cmd redis.Cmder) {
	p.cmds, p.keys = append(p.cmds, cmd), append(p.keys, key)
}

// sift leaves out the generations, from the first on, which are known not to have the key.
func (t *exchange) sift(st *bucketStep, p bucketPosition) {
	for st.generation = t.view.first; st.generation < t.view.last &&
		t.b.closed(t.At, st.generation); st.generation++ {
		known := t.b.filter.of(st.generation, p, t.b.shards)
		if known == nil || !known.lacks(p.member) {
			return
		}
	}
}

// readWhole adds a command that reads the first bucket of a step as a whole, if that is due. It
// does so for few buckets in one round, because each takes as long as twelve claims.
func (t *exchange) readWhole(ctx context.Context, st *bucketStep, out *plainCommands,
	items int) {
	if st.kind != claimLease && st.kind != lookFirst || !t.b.closed(t.At, st.generation) {
		return
	}
	p := t.placeOf(st)
	known := t.b.filter.of(st.generation, p, t.b.shards)
	if known == nil || !known.due() || len(t.reads) > items/20 {
		return
	}
	known.asked.Store(0)
	bucket := string(t.b.appendBucket(nil, p, st.generation))
	// From a larger bucket SRANDMEMBER returns only this number of members.
	cmd := redis.NewStringSliceCmd(ctx, "srandmember", bucket, filterMembers+1)
	t.reads = append(t.reads, bucketRead{known, cmd})
	out.add(bucket, cmd)
}

// keepReads keeps what was read of buckets. A read that was refused is due again
// later.
func (t *exchange) keepReads() {
	for _, r := range t.reads {
		if members, err := r.cmd.Result(); err == nil {
			r.into.keep(members)
		}
	}
	t.reads = nil
}

// write adds the arguments of a step to b, in the order in which command takes them.
func (t *exchange) write(b *wire.Commands, st *bucketStep) {
	if !st.single() {
		return
	}
	p := t.placeOf(st)
	if st.kind != addMember && st.kind != seekApart && st.kind != lookFirst {
		b.Buf = t.b.appendLease(b.Buf, p, t.idOf(st))
		b.End()
	}
	switch st.kind {
	case claimLease:
		rec := wire.ClaimRecord(&t.Reqs[st.item], t.At)
		b.Value(&rec)
	case addMember:
		if st.look {
			b.Buf = t.b.appendLease(b.Buf, p, t.idOf(st))
			b.End()
		}
		b.Buf = t.b.appendBucket(b.Buf, p, st.generation)
		b.End()
	}
	switch st.kind {
	case claimLease, lookFirst, seekApart:
		st.generation = t.view.first
		if st.kind != seekApart {
			t.sift(st, p)
		}
		for g := st.generation; g <= t.view.last; g++ {
			b.Buf = t.b.appendBucket(b.Buf, p, g)
			b.End()
		}
		fallthrough
	case addMember:
		b.Buf = strconv.AppendInt(b.Buf, p.member, 10)
		b.End()
	}
}

// command makes the commands of a step.
func (t *exchange) command(ctx context.Context, b *wire.Commands, st *bucketStep) {
	switch st.kind {
	case claimLease:
		ms := redisscript.Millis(t.Reqs[st.item].Lease) + redisscript.Millis(t.Reqs[st.item].Hold)
		st.cmd = redis.NewStringCmd(ctx,
			b.Arguments("set", b.Take(), b.Take(), "px", b.Millis(ms), "nx")...)
		st.seen = isMember(ctx, b, t.view.last-st.generation+1)
	case lookFirst, seekApart:
		st.seen = isMember(ctx, b, t.view.last-st.generation+1)
	case addMember:
		t.addition(ctx, b, st)
	case dropLease, giveBack:
		st.cmd = redis.NewStringCmd(ctx, b.Arguments("getdel", b.Take())...)
	}
}

// addition makes the SADD. If that may be the first of its bucket, addition also gives the bucket
// its expiry, and the previous bucket too, in case somebody has made that without an expiry.
func (t *exchange) addition(ctx context.Context, b *wire.Commands, st *bucketStep) {
	if st.look {
		st.lease = b.Take()
	}
	bucket := b.Take()
	st.seen = append(st.seen, redis.NewIntCmd(ctx, b.Arguments("sadd", bucket, b.Take())...))
	if !st.first {
		return
	}
	before := string(t.b.appendBucket(nil, t.placeOf(st), st.generation-1))
	st.seen = append(st.seen,
		redis.NewIntCmd(ctx, "pexpireat", bucket, t.b.end(st.generation), "nx"),
		redis.NewIntCmd(ctx, "pexpireat", before, t.b.end(st.generation-1), "nx"))
}

// together makes the two commands that a round has at most once, after all others: MGET of the
// leases of the adds, and DEL of the leases that are known to be our own.
func (t *exchange) together(ctx context.Context, round []bucketStep, out *plainCommands) {
	look, drop := []any{"mget"}, []any{"del"}
	for i := range round {
		switch st := &round[i]; {
		case st.kind == addMember && st.lease != nil:
			st.nth = len(look) - 1
			look = append(look, st.lease)
		case st.kind == dropOwn:
			drop = append(drop, st.lease)
		}
	}
	if len(look) > 1 {
		t.leases = redis.NewStringSliceCmd(ctx, look...)
		out.add("", t.leases)
	}
	if len(drop) == 1 {
		return
	}
	del := redis.NewIntCmd(ctx, drop...)
	out.add("", del)
	for i := range round {
		if st := &round[i]; st.kind == dropOwn {
			st.seen = []*redis.IntCmd{del}
		}
	}
}

// isMember makes a SISMEMBER for each bucket. In b.Text, the names of the buckets come before the
// member.
func isMember(ctx context.Context, b *wire.Commands, width int64) []*redis.IntCmd {
	cmds := make([]*redis.IntCmd, width)
	member := &b.Text[width]
	for i := range cmds {
		cmds[i] = redis.NewIntCmd(ctx, b.Arguments("sismember", b.Take(), member)...)
	}
	b.Take()
	return cmds
}
