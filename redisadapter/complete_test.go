package redisadapter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/internal/redistest"
)

// scripts counts the EVALSHAs of a client, and the keys that they are about.
type scripts struct{ calls, keys int }

func (s *scripts) count(ctx context.Context, cmds []redis.Cmder,
	next redis.ProcessPipelineHook) error {
	for _, cmd := range cmds {
		if cmd.Name() == "evalsha" {
			s.calls, s.keys = s.calls+1, s.keys+cmd.Args()[2].(int)
		}
	}
	return next(ctx, cmds)
}

// ending returns the end of a claim that got the answer a.
func ending(n int, a driver.Answer, state driver.State, result string) driver.Finish {
	c := change(n, state)
	c.Fence, c.Attempt, c.Result = a.Record.Fence, a.Record.Attempt, []byte(result)
	return c
}

// TestCompleteTogether: a batch of ends of own claims needs a script for 64 keys on one server, and
// one for each key on a Cluster. Every key gets its own window, and its own result or failure.
func TestCompleteTogether(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		s, sent := open(t, b), &scripts{}
		reqs := requests(0)
		for i := range reqs {
			reqs[i].Label = []string{"", "a label"}[i/100%2]
		}
		ends := make([]driver.Finish, len(reqs))
		for i, a := range s.Claim(t.Context(), reqs) {
			state := driver.StateSucceeded
			if i%7 == 0 {
				state = driver.StateFailed
			}
			ends[i] = ending(i, a, state, fmt.Sprint("result ", i))
			ends[i].Label, ends[i].Window = reqs[i].Label, time.Duration(1+i/150)*time.Hour
		}
		b.Client.AddHook(pipelineHook(sent.count))
		for i, a := range s.Finish(t.Context(), ends) {
			require.NoError(t, a.Err)
			require.True(t, a.Held, "key %d: %+v", i, a)
			require.True(t, a.Written, "key %d: %+v", i, a)
			require.Equal(t, ends[i].State, a.Record.State, "key %d: %+v", i, a)
			require.Equal(t, fmt.Sprint("result ", i), string(a.Record.Result), "key %d: %+v", i, a)
		}
		// Windows and labels change at 100, 150 and 200: 64+36, 50, 50, 56. Each script has the
		// index, too.
		want := (scripts{5, len(ends) + 5})
		if b.Name != "cluster" && !knowsIFEQ(t, b) {
			assert.Equal(t, want, *sent, "scripts")
		}
		for i, a := range s.Lookup(t.Context(), ids(ends)) {
			window := ends[i].Window
			require.Equal(t, ends[i].State, a.Record.State, "key %d: %+v", i, a.Record)
			require.Equal(t, fmt.Sprint("result ", i), string(a.Record.Result),
				"key %d: %+v", i, a.Record)
			require.Equal(t, ends[i].Label, a.Record.Label, "key %d: %+v", i, a.Record)
			require.Equal(t, ends[i].Fence, a.Record.Fence, "key %d: %+v", i, a.Record)
			require.Equal(t, 1, a.Record.Attempt, "key %d: %+v", i, a.Record)
			require.LessOrEqual(t, a.Record.Remaining, window, "key %d: %+v", i, a.Record)
			require.GreaterOrEqual(t, a.Record.Remaining, window-time.Minute,
				"key %d: %+v", i, a.Record)
		}
	})
}

func ids(changes []driver.Finish) []driver.ID {
	out := make([]driver.ID, len(changes))
	for i := range changes {
		out[i] = changes[i].ID
	}
	return out
}

// TestCompleteTogetherLeavesOthers: some ends of the batch cannot use the script for many keys.
// Another owner has taken the key, the end came twice, or the record must keep the fingerprint of
// an earlier attempt.
func TestCompleteTogetherLeavesOthers(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		s := open(t, b)
		const taken, again, bound, fenced = 3, 4, 5, 6
		reqs := requests(0)[:8]
		reqs[bound].Fingerprint = driver.FingerprintOf([]byte("payload"))
		claims := s.Claim(t.Context(), reqs)
		free := func(n int, by byte) driver.Answer {
			t.Helper()
			release := ending(n, claims[n], driver.StateReleased, "")
			a := s.Finish(t.Context(), []driver.Finish{release})[0]
			require.True(t, a.Written, "release: %+v", a)
			next := request(n)
			next.Token = driver.Token{byte(n), by}
			a = s.Claim(t.Context(), []driver.ClaimRequest{next})[0]
			require.Equal(t, dedup.Acquired, a.Outcome, "next claim: %+v", a)
			return a
		}
		ends := make([]driver.Finish, len(reqs))
		free(taken, 2)
		ends[bound].Token = driver.Token{}
		for i := range ends {
			ends[i] = ending(i, claims[i], driver.StateSucceeded, "own")
		}
		ends[bound] = ending(bound, free(bound, 3), driver.StateSucceeded, "own")
		ends[bound].Token = driver.Token{bound, 3}
		a := s.Finish(t.Context(), ends[again:again+1])[0]
		require.True(t, a.Held, "first send: %+v", a)
		ends[fenced].Fence-- // of another claim under the same token
		answers := s.Finish(t.Context(), ends)
		stored := s.Lookup(t.Context(), ids(ends))
		for i, a := range answers {
			want := i != taken && i != fenced
			assert.NoError(t, a.Err)
			assert.Equal(t, want, a.Held, "key %d: %+v", i, a)
			assert.Equal(t, want, a.Written, "key %d: %+v", i, a)
			assert.Equal(t, want, stored[i].Record.State == driver.StateSucceeded,
				"key %d is stored as %+v", i, stored[i].Record)
		}
		assert.Equal(t, reqs[bound].Fingerprint, stored[bound].Record.Fingerprint,
			"the fingerprint of an earlier attempt is lost: %+v", stored[bound].Record)
		got := stored[fenced].Record.Fence
		assert.Equal(t, claims[fenced].Record.Fence, got,
			"fence %d on record, the claim had %d", got, claims[fenced].Record.Fence)
	})
}

// TestCompleteApart: a proxy that spreads keys over servers refuses a script for several keys. The
// batch still succeeds, and the next one is sent key by key.
func TestCompleteApart(t *testing.T) {
	b := redistest.Open(t, "miniredis")
	s, sent := open(t, b), &scripts{}
	b.Client.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder,
		next redis.ProcessPipelineHook) error {
		var through []redis.Cmder
		for _, cmd := range cmds {
			if (cmd.Name() == "evalsha" || cmd.Name() == "eval") && !oneSlot(cmd) {
				cmd.SetErr(crossSlot{})
				continue
			}
			through = append(through, cmd)
		}
		if len(through) == 0 {
			return nil
		}
		return next(ctx, through)
	}))
	b.Client.AddHook(pipelineHook(sent.count))
	for round := range 2 {
		reqs := requests(round * batchSize)
		ends := make([]driver.Finish, len(reqs))
		for i, a := range s.Claim(t.Context(), reqs) {
			ends[i] = ending(round*batchSize+i, a, driver.StateSucceeded, "x")
		}
		*sent = scripts{}
		for i, a := range s.Finish(t.Context(), ends) {
			require.NoError(t, a.Err)
			require.True(t, a.Held, "round %d, key %d: %+v", round, i, a)
			require.Equal(t, []byte("x"), a.Record.Result, "round %d, key %d: %+v", round, i, a)
		}
		want := batchSize
		assert.False(t, round == 1 && sent.calls != want, "sent %+v, want %d scripts", *sent, want)
	}
}

// oneSlot reports whether the keys of a script are in one slot.
func oneSlot(cmd redis.Cmder) bool {
	n, _ := cmd.Args()[2].(int)
	slots := map[int]bool{}
	for _, arg := range cmd.Args()[3 : 3+n] {
		key, ok := arg.(string)
		if !ok {
			key = *arg.(*string)
		}
		slots[redisscript.Slot(key)] = true
	}
	return len(slots) == 1
}

// crossSlot is the error of a server.
type crossSlot struct{}

func (crossSlot) RedisError()   {}
func (crossSlot) Error() string { return "CROSSSLOT Keys in request don't hash to the same slot" }

var _ redis.Error = crossSlot{}

// TestCompleteShortOfTime: each end without a reply is unknown.
func TestCompleteShortOfTime(t *testing.T) {
	b := redistest.Open(t, "miniredis")
	s := open(t, b)
	reqs := requests(0)
	ends := make([]driver.Finish, len(reqs))
	for i, a := range s.Claim(t.Context(), reqs) {
		ends[i] = ending(i, a, driver.StateSucceeded, "x")
	}
	lost := errors.New("connection reset")
	b.Client.AddHook(pipelineHook(func(_ context.Context, cmds []redis.Cmder,
		_ redis.ProcessPipelineHook) error {
		for _, cmd := range cmds {
			cmd.SetErr(lost)
		}
		return lost
	}))
	for i, a := range s.Finish(t.Context(), ends) {
		require.ErrorIs(t, a.Err, lost, "key %d: %+v", i, a)
		require.False(t, a.Held, "key %d: %+v", i, a)
		require.False(t, a.Written, "key %d: %+v", i, a)
	}
}
