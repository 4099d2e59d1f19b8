package redisadapter_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// shippedUser returns the user of users.acl for ACL SETUSER: its name, its commands, and its other
// rules.
func shippedUser(t *testing.T) (name string, rules, commands []string) {
	t.Helper()
	text, err := os.ReadFile("users.acl")
	must(t, err)
	fields := strings.Fields(string(text))
	require.GreaterOrEqual(t, len(fields), 3, "users.acl: %q", text)
	require.Equal(t, "user", fields[0], "users.acl: %q", text)
	for _, f := range fields[2:] {
		if strings.HasPrefix(f, "+") {
			commands = append(commands, f)
		} else {
			rules = append(rules, f)
		}
	}
	return fields[1], rules, commands
}

// TestDocNamesTheUser: the package comment has the same user as the file that Redis reads.
func TestDocNamesTheUser(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	must(t, err)
	user, err := os.ReadFile("users.acl")
	must(t, err)
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(doc), "//", "")), " ")
	want := strings.TrimSpace(string(user))
	assert.Contains(t, text, want, "doc.go does not show the line of users.acl:\n%s", want)
}

// TestLeastPrivilege runs the whole suite, over TLS, as the user that is shipped.
func TestLeastPrivilege(t *testing.T) {
	client := overTLS(t, "onceward", "change-me")
	err := client.FlushAll(t.Context()).Err()
	require.Equal(t, "denied", redisadapter.Classify(err), "the user may FLUSHALL: %v", err)
	eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
		must(t, client.Del(t.Context(), "ow:layout").Err()) // the user may use one prefix only
		h := harness(t, redistest.Backend{Client: client, Prefix: "ow"}, layout)
		h.Unreadable = nil        // needs more rights than the store has
		h.WalkSteps = byHandSteps // about rights a longer walk learns nothing
		deduptest.Run(t, h)
	})
	_, err = redisadapter.New(t.Context(), client, redisadapter.Options{Prefix: "other"})
	assert.Equal(t, "denied", redisadapter.Classify(err), "keys of another prefix: %v", err)
	assert.Contains(t, fmt.Sprint(err), `"other:*"`, "keys of another prefix: %v", err)
}

// TestNoRightTooMany takes nearly every right from the shipped user, one after the other. Without
// any of them a call fails. On a Cluster the client needs rights that one server does not ask for.
func TestNoRightTooMany(t *testing.T) {
	single := servertest.Private(t, servertest.KindRedis)
	cluster := servertest.Private(t, servertest.KindRedisCluster)
	name, rules, commands := shippedUser(t)
	connect := func(t *testing.T, allowed []string) []redis.UniversalClient {
		t.Helper()
		for _, addr := range append([]string{single.Addr}, cluster.Addrs...) {
			admin := redistest.Client(t, &redis.Options{Addr: addr})
			must(t, admin.Do(t.Context(),
				anys("ACL", "SETUSER", name, "reset", rules, allowed)...).Err())
			must(t, admin.ScriptFlush(t.Context()).Err())
		}
		one := redistest.Client(t,
			&redis.Options{Addr: single.Addr, Username: name, Password: "change-me"})
		many := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: cluster.Addrs, Username: name, Password: "change-me",
			ClusterStateReloadInterval: time.Second,
		})
		t.Cleanup(func() { must(t, many.Close()) })
		return []redis.UniversalClient{one, many}
	}
	t.Run("all", func(t *testing.T) {
		for _, client := range connect(t, commands) {
			must(t, everyCall(t.Context(), client))
		}
	})
	// Commands that everyCall does not reach, because they take a lease that lapses in the middle
	// of a completion, or a slot that moves.
	seldom := []string{"+srandmember", "+pexpireat", "+getdel", "+del", "+asking",
		"+hdel"} // if it is missing, an end does not fail
	for _, command := range slices.DeleteFunc(slices.Clone(commands), func(c string) bool {
		return slices.Contains(seldom, c)
	}) {
		t.Run(command, func(t *testing.T) {
			fewer := slices.DeleteFunc(slices.Clone(commands), func(c string) bool {
				return c == command
			})
			missed := false
			for _, client := range connect(t, fewer) {
				err := everyCall(t.Context(), client)
				missed = missed || err != nil
				assert.False(t, err != nil && redisadapter.Classify(err) != "denied",
					"without %s the error is not one of rights: %v", command, err)
			}
			assert.True(t, missed, "nothing needs %s", command)
		})
	}
}

// TestRightsWhileASlotMoves: a key that does not exist yet is asked for with ASKING at the master
// to which its slot moves.
func TestRightsWhileASlotMoves(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedisCluster)
	name, rules, commands := shippedUser(t)
	for _, addr := range server.Addrs {
		admin := redistest.Client(t, &redis.Options{Addr: addr})
		must(t, admin.Do(t.Context(),
			anys("ACL", "SETUSER", name, "reset", rules, commands)...).Err())
	}
	user := redis.NewClusterClient(&redis.ClusterOptions{Addrs: server.Addrs, Username: name,
		Password: "change-me"})
	t.Cleanup(func() { must(t, user.Close()) })
	store := open(t, redistest.Backend{Client: user, Prefix: "ow"})
	admin := redistest.Cluster(t, server.Addrs)
	beginMoving(t, admin, redisadapter.Key(store, newID(1)))
	wantOutcome(t, store, 1, dedup.Acquired)
}

func options(layout redisadapter.Layout) redisadapter.Options {
	opts := layoutOptions("ow", layout)
	opts.BreakerAfter = -1
	return opts
}

// pastNoReturn lets an attempt end as uncertain, and lists it.
func pastNoReturn(ctx context.Context, store *redisadapter.Store, n int) error {
	// the key of an earlier run that was refused halfway
	if err := store.Forget(ctx, []driver.ID{newID(n)}, 0)[0]; err != nil {
		return err
	}
	declare := renewalOf(change(n, driver.StateReleased))
	declare.Irreversible = true
	for _, answers := range [][]driver.Answer{
		store.Claim(ctx, []driver.ClaimRequest{request(n)}),
		store.Renew(ctx, []driver.Renewal{declare}),
		store.Finish(ctx, []driver.Finish{change(n, driver.StateReleased)}),
	} {
		if answers[0].Err != nil {
			return answers[0].Err
		}
	}
	if page, _, err := store.Uncertain(ctx, "", 0); err != nil || len(page) == 0 {
		return fmt.Errorf("%d uncertain keys: %w", len(page), err)
	}
	return store.Forget(ctx, []driver.ID{newID(n)}, 0)[0]
}

// everyCall makes every call of a Store in every layout and returns the first error.
func everyCall(ctx context.Context, client redis.UniversalClient) error {
	// New reports a refused INFO and continues, but cannot know then whether the server evicts.
	if err := client.Info(ctx, "memory").Err(); err != nil {
		return err
	}
	for _, layout := range layouts {
		// The user may use one prefix only, and the layouts cannot share a prefix.
		if err := client.Del(ctx, "ow:layout").Err(); err != nil {
			return err
		}
		store, err := redisadapter.New(ctx, client, options(layout))
		if err != nil {
			return err
		}
		n := 100 * int(layout)
		ids := []driver.ID{newID(n), newID(n + 1)}
		reqs := []driver.ClaimRequest{request(n), request(n + 1)}
		likely := []driver.ClaimRequest{request(n + 2), request(n + 3)} // looked at by one MGET
		likely[0].LikelyDuplicate, likely[1].LikelyDuplicate = true, true
		done := []driver.Finish{change(n, driver.StateSucceeded), change(n+1, driver.StateReleased)}
		for _, answers := range [][]driver.Answer{
			store.Claim(ctx, reqs),
			store.Renew(ctx, []driver.Renewal{renewalOf(done[0]), renewalOf(done[1])}),
			store.Finish(ctx, done),
			store.Claim(ctx, reqs), store.Lookup(ctx, ids), store.Claim(ctx, likely),
		} {
			for _, a := range answers {
				if a.Err != nil {
					return a.Err
				}
			}
		}
		if _, err := store.Forgets(ctx); err != nil {
			return err
		}
		if err := pastNoReturn(ctx, store, n+4); err != nil {
			return err
		}
		done[1].State = driver.StateReleased
		store.Finish(ctx, done)
		for _, err := range store.Forget(ctx, ids[:1], time.Minute) {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// anys flattens strings and lists of them for a command.
func anys(parts ...any) (out []any) {
	for _, part := range parts {
		switch p := part.(type) {
		case []string:
			for _, s := range p {
				out = append(out, s)
			}
		default:
			out = append(out, p)
		}
	}
	return out
}
