package redisadapter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// pipelineHook lets a test see and change pipelines.
type pipelineHook func(ctx context.Context, cmds []redis.Cmder,
	next redis.ProcessPipelineHook) error

func (h pipelineHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h pipelineHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, []redis.Cmder{cmd}, func(ctx context.Context, cmds []redis.Cmder) error {
			return next(ctx, cmds[0])
		})
	}
}
func (h pipelineHook) ProcessPipelineHook(
	next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, next) }
}

func has(cmds []redis.Cmder, name string) bool {
	return slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == name })
}

// done is a completion whose effect has landed, while its claim still lasts.
func done(n int, a driver.Answer) driver.Finish {
	c := change(n, driver.StateSucceeded)
	c.EffectApplied, c.Fence, c.Attempt, c.Until, c.Window = true, a.Record.Fence, 1,
		time.Now().Add(time.Minute), time.Hour
	c.MayOverwrite = n%2 == 0 // plain commands are mixed with scripts
	return c
}

// seasonKeys keys are enough to give every bucket of layoutOptions its expiry. There are nine
// buckets.
const seasonKeys = 64

// seasoned completes enough keys for every bucket to have its expiry, so that later keys are
// completed by plain commands.
func seasoned(t testing.TB, stores ...*redisadapter.Store) {
	t.Helper()
	for n, s := range stores {
		first := 20_000 + n*10_000
		shards := make(map[string]bool)
		for key := range seasonKeys {
			shards[redisadapter.Bucket(s, newID(first+key), time.Time{})] = true
		}
		require.Len(t, shards, redisadapter.Shards(s), "buckets that will have their end")
		completeAll(t, s, requests(first)[:seasonKeys], first)
	}
}

// season completes the 1,024 keys from first on.
func season(t testing.TB, s *redisadapter.Store, first int) {
	t.Helper()
	for n := range 4 {
		completeAll(t, s, requests(first+n*batchSize), first+n*batchSize)
	}
}

// completeAll claims and completes the keys from first on.
func completeAll(t testing.TB, s *redisadapter.Store, reqs []driver.ClaimRequest, first int) {
	t.Helper()
	ends := make([]driver.Finish, len(reqs))
	for i, a := range s.Claim(t.Context(), reqs) {
		ends[i] = done(first+i, a)
	}
	for i, a := range s.Finish(t.Context(), ends) {
		require.True(t, a.Held && a.Written, "key %d: %+v", first+i, a)
	}
}

// TestMembershipIsReadUnderTheLease: another process completes the key between any two commands of
// a claim. If the claim read membership before it has its lease, the key would run again.
func TestMembershipIsReadUnderTheLease(t *testing.T) {
	for _, likely := range []bool{false, true} {
		for cut := 1; cut <= 2; cut++ {
			t.Run(fmt.Sprintf("likely=%t/cut=%d", likely, cut), func(t *testing.T) {
				mini, client := redistest.Mini(t)
				mine := openWith(t, redistest.Backend{Client: client},
					layoutOptions("ow", redisadapter.Compact))
				theirs := openWith(t, redistest.Backend{Client: redistest.Patient(t, mini.Addr())},
					layoutOptions("ow", redisadapter.Compact))
				redisadapter.LookEverywhere(mine)
				seasoned(t, mine, theirs)
				claimed := theirs.Claim(t.Context(), []driver.ClaimRequest{request(1)})[0]
				ended := false
				client.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder,
					next redis.ProcessPipelineHook) error {
					if ended || !has(cmds, "sismember") || cut >= len(cmds) {
						return next(ctx, cmds)
					}
					ended = true
					_ = next(ctx, cmds[:cut])
					a := theirs.Finish(ctx, []driver.Finish{done(1, claimed)})[0]
					assert.True(t, a.Held, "%+v", a)
					return next(ctx, cmds[cut:])
				}))
				req := request(1)
				req.Token, req.LikelyDuplicate = driver.Token{9}, likely
				a := mine.Claim(t.Context(), []driver.ClaimRequest{req})[0]
				assert.NoError(t, a.Err, "claimed while it was completed")
				assert.NotEqual(t, dedup.Acquired, a.Outcome, "claimed while it was completed: %+v", a)
				assert.True(t, ended || likely && cut == 2, "no pipeline was cut")
				if a := mine.Claim(t.Context(), []driver.ClaimRequest{req})[0]; ended {
					assert.Equal(t, dedup.Duplicate, a.Outcome, "and then: %+v", a)
				}
			})
		}
	}
}

// refusal is the error of a server that refuses a command.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// refuse makes the server refuse every command of a name with an error.
func refuse(client *redis.Client, name string, err error) {
	client.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder,
		next redis.ProcessPipelineHook) error {
		var rest []redis.Cmder
		for _, c := range cmds {
			if c.Name() == name {
				c.SetErr(err)
				continue
			}
			rest = append(rest, c)
		}
		if len(rest) == 0 {
			return err
		}
		return next(ctx, rest)
	}))
}

// TestRefusedAddKeepsTheLease: if the server refused SADD but executed GETDEL, the effect would run
// again without a crash. A script does both.
func TestRefusedAddKeepsTheLease(t *testing.T) {
	for _, problem := range []error{
		refusal("OOM command not allowed when used memory > 'maxmemory'."),
		refusal("MOVED 1 127.0.0.1:1"),
		refusal("READONLY You can't write against a read only replica."),
		errors.New("connection reset"),
	} {
		t.Run(problem.Error(), func(t *testing.T) {
			_, client := redistest.Mini(t)
			store := openWith(t, redistest.Backend{Client: client},
				layoutOptions("ow", redisadapter.Compact))
			seasoned(t, store)
			claimed := store.Claim(t.Context(), []driver.ClaimRequest{request(1), request(2)})
			refuse(client, "sadd", problem)
			for i, a := range store.Finish(t.Context(),
				[]driver.Finish{done(1, claimed[0]), done(2, claimed[1])}) {
				var reply redis.Error
				if errors.As(problem, &reply) {
					assert.True(t, a.Held && a.Written, "item %d: %+v", i, a)
				}
				if a.Err != nil {
					assert.False(t, a.Written, "item %d: %+v", i, a)
				}
				req := request(1 + i)
				req.Token = driver.Token{9}
				b := store.Claim(t.Context(), []driver.ClaimRequest{req})[0]
				assert.NotEqual(t, dedup.Acquired, b.Outcome, "item %d, another's claim: %+v", i, b)
				if a.Written {
					assert.Equal(t, dedup.Duplicate, b.Outcome, "item %d: %+v", i, b)
				}
			}
		})
	}
}

// TestPlainCommandsThatAreRefused: if the server refuses one of the plain commands, no claim of a
// finished key gets it.
func TestPlainCommandsThatAreRefused(t *testing.T) {
	for _, name := range []string{"set", "sismember", "getdel"} {
		t.Run(name, func(t *testing.T) {
			_, client := redistest.Mini(t)
			store := openWith(t, redistest.Backend{Client: client},
				layoutOptions("ow", redisadapter.Compact))
			seasoned(t, store)
			first := store.Claim(t.Context(), []driver.ClaimRequest{request(1)})[0]
			refuse(client, name, refusal("TRYAGAIN Multiple keys request during rehashing of slot"))
			a := store.Finish(t.Context(), []driver.Finish{done(1, first)})[0]
			require.True(t, a.Held && a.Written, "%+v", a)
			for i, want := range []driver.Outcome{dedup.Duplicate, dedup.Acquired} {
				req := request(1 + i)
				req.Token = driver.Token{9}
				a := store.Claim(t.Context(), []driver.ClaimRequest{req})[0]
				assert.Equal(t, want, a.Outcome, "key %d: %+v", 1+i, a)
			}
		})
	}
}

// TestCompletedTwice: a completion whose replies were lost is sent again.
func TestCompletedTwice(t *testing.T) {
	for _, byScript := range []bool{false, true} {
		_, client := redistest.Mini(t)
		store := openWith(t, redistest.Backend{Client: client},
			layoutOptions("ow", redisadapter.Compact))
		seasoned(t, store)
		if byScript {
			redisadapter.DropByScript(store)
		}
		claimed := store.Claim(t.Context(), []driver.ClaimRequest{request(1)})[0]
		end := done(1, claimed)
		for send := range 3 {
			a := store.Finish(t.Context(), []driver.Finish{end})[0]
			assert.True(t, a.Held && a.Written, "send %d: %+v", send, a)
		}
		late := end
		late.Until = time.Now()
		a := store.Finish(t.Context(), []driver.Finish{late})[0]
		assert.False(t, a.Held || a.Written, "when its time is over: %+v", a)
		assert.Equal(t, driver.StateSucceeded, a.Record.State, "when its time is over")
		n := client.Exists(t.Context(), redisadapter.Key(store, request(1).ID)).Val()
		assert.Zero(t, n, "the lease is still there")
	}
}

// TestAddThatComesLate: SADD is executed when its owner has lost the key, to a Forget or to another
// owner.
func TestAddThatComesLate(t *testing.T) {
	for _, taken := range []bool{false, true} {
		mini, client := redistest.Freeze(t)
		store := openWith(t, redistest.Backend{Client: client},
			layoutOptions("ow", redisadapter.Compact))
		other := openWith(t, redistest.Backend{Client: redistest.Patient(t, mini.Addr())},
			layoutOptions("ow", redisadapter.Compact))
		seasoned(t, store)
		req := request(1)
		claimed := store.Claim(t.Context(), []driver.ClaimRequest{req})[0]
		end := done(1, claimed)
		end.Until = time.Now().Add(50 * time.Millisecond)
		client.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder,
			next redis.ProcessPipelineHook) error {
			if has(cmds, "sadd") {
				mini.Advance(req.Lease + time.Millisecond)
				if taken {
					again := request(1)
					again.Token = driver.Token{9}
					a := other.Claim(ctx, []driver.ClaimRequest{again})[0]
					assert.Equal(t, dedup.Acquired, a.Outcome, "%+v", a)
				} else {
					require.NoError(t, other.Forget(ctx, []driver.ID{req.ID}, time.Hour)[0])
				}
				<-time.After(time.Until(end.Until))
			}
			return next(ctx, cmds)
		}))
		a := store.Finish(t.Context(), []driver.Finish{end})[0]
		assert.False(t, a.Held, "taken=%t: %+v", taken, a)
		assert.Equal(t, taken, a.Written, "%+v", a)
		want := driver.StateAbsent
		if taken {
			want = driver.StateSucceeded
		}
		rec := other.Lookup(t.Context(), []driver.ID{req.ID})[0].Record
		assert.Equal(t, want, rec.State, "taken=%t", taken)
		if renewal := renewal(1); taken {
			renewal.Token = driver.Token{9}
			a := other.Renew(t.Context(), []driver.Renewal{renewal})[0]
			assert.False(t, a.Held, "the owner that was overtaken still renews: %+v", a)
		}
	}
}
