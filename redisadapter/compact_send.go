package redisadapter

import (
	"context"
	"iter"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
)

// send makes one round, and returns at the latest when ctx ends.
func (t *compactTrip) send(ctx context.Context, round []bucketStep) error {
	var calls []redisscript.Call
	for i := range round {
		if round[i].scripted() {
			calls = append(calls, t.callOf(&round[i]))
		}
	}
	plain := t.commands(ctx, round)
	looks := t.tail.round(t.claimsIn(round))
	replies, err := t.s.inRoom(ctx, t.why, func() []redisscript.Reply {
		return t.s.sendBeside(ctx, calls, plain, looks)
	})
	if err != nil {
		return err
	}
	t.tail.add(looks)
	for i := range round {
		if round[i].scripted() {
			round[i].reply, replies = replies[0], replies[1:]
		}
	}
	return nil
}

// claimsIn yields the requests that a round is about.
func (t *compactTrip) claimsIn(round []bucketStep) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range round {
			switch st := &round[i]; st.kind {
			case lookFirst, claimLease, claimWithScript:
				if !yield(st.item) {
					return
				}
			}
		}
	}
}

// plainCommands are the commands of a round, those of an item side by side.
type plainCommands struct {
	cmds []redis.Cmder
	// keys has for each command a key of its slot.
	keys []string
}

// sendBeside sends scripts and plain commands: to one server in one pipeline, to a
// Cluster in one for each node that the plain commands are for, and one of the client's
// for the scripts.
//
// A node is asked by its own client. The client of the Cluster would follow redirections
// command by command, while a slot is being moved, and the membership might be read
// before the lease was ours.
func (s *Store) sendBeside(ctx context.Context, calls []redisscript.Call, plain plainCommands, looks *looks) []redisscript.Reply {
	last := looks.queue(ctx)
	cluster := s.guard.cluster
	if cluster == nil || len(plain.cmds) == 0 {
		return s.runner.Send(ctx, calls, plain.cmds, last)
	}
	if last != nil {
		for i, cmd := range last() {
			plain.cmds, plain.keys = append(plain.cmds, cmd), append(plain.keys, looks.g.keys[looks.need[i]])
		}
	}
	var nodes sync.WaitGroup
	for node, cmds := range byNode(ctx, cluster, plain) {
		nodes.Go(func() {
			s.runner.On(node).Send(ctx, nil, cmds, nil)
		})
	}
	var replies []redisscript.Reply
	if len(calls) > 0 {
		replies = s.runner.Send(ctx, calls, nil, last)
	}
	nodes.Wait()
	return replies
}

// byNode groups commands by the master that serves their slot, in their order. Those of
// a slot that nobody serves get that as their error.
func byNode(ctx context.Context, cluster *redis.ClusterClient, plain plainCommands) map[*redis.Client][]redis.Cmder {
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

// commands builds the plain commands of a round.
func (t *compactTrip) commands(ctx context.Context, round []bucketStep) plainCommands {
	n := 0
	for i := range round {
		if !round[i].scripted() {
			n++
		}
	}
	if n == 0 {
		return plainCommands{}
	}
	width := int(t.view.last-t.view.first) + 1
	l := newLines(n * (width + 1))
	for i := range round {
		t.write(l, &round[i])
	}
	l.freeze(n * (width + 1))
	out := plainCommands{make([]redis.Cmder, 0, n*(width+1)), make([]string, 0, n*(width+1))}
	for i := range round {
		if st := &round[i]; !st.scripted() {
			key := l.text[0]
			t.command(ctx, l, st, width)
			if st.cmd != nil {
				out.cmds, out.keys = append(out.cmds, st.cmd), append(out.keys, key)
			}
			for _, cmd := range st.seen {
				out.cmds, out.keys = append(out.cmds, cmd), append(out.keys, key)
			}
		}
	}
	return out
}

// write adds the texts of a step, in the order in which command takes them.
func (t *compactTrip) write(l *lines, st *bucketStep) {
	if st.scripted() {
		return
	}
	p := t.placeOf(st)
	if st.kind != addMember && (st.kind != lookFirst || t.s.opts.Layout == Mixed) {
		l.buf = t.b.appendLease(l.buf, p, t.idOf(st))
		l.end()
	}
	switch st.kind {
	case claimLease:
		rec := claimRecord(&t.reqs[st.item], t.at)
		l.value(&rec)
	case addMember:
		l.buf = t.b.appendBucket(l.buf, p, st.generation)
		l.end()
	}
	switch st.kind {
	case claimLease, lookFirst:
		for g := t.view.first; g <= t.view.last; g++ {
			l.buf = t.b.appendBucket(l.buf, p, g)
			l.end()
		}
		fallthrough
	case addMember:
		l.buf = strconv.AppendInt(l.buf, p.member, 10)
		l.end()
	}
}

// command makes the commands of a step.
func (t *compactTrip) command(ctx context.Context, l *lines, st *bucketStep, width int) {
	switch st.kind {
	case claimLease:
		st.cmd = l.setClaim(ctx, redisscript.Millis(t.reqs[st.item].Lease)+redisscript.Millis(t.reqs[st.item].Hold))
		st.seen = l.isMember(ctx, width)
	case lookFirst:
		if t.s.opts.Layout == Mixed {
			st.cmd = l.get(ctx)
		}
		st.seen = l.isMember(ctx, width)
	case addMember:
		bucket := l.take()
		st.seen = []*redis.IntCmd{redis.NewIntCmd(ctx, l.carve("sadd", bucket, l.take())...)}
	case dropLease, giveBack:
		st.cmd = redis.NewStringCmd(ctx, l.carve("getdel", l.take())...)
	}
}

// isMember is SISMEMBER of each bucket, whose names lie before the member.
func (l *lines) isMember(ctx context.Context, width int) []*redis.IntCmd {
	cmds := make([]*redis.IntCmd, width)
	member := &l.text[width]
	for i := range cmds {
		cmds[i] = redis.NewIntCmd(ctx, l.carve("sismember", l.take(), member)...)
	}
	l.take()
	return cmds
}
