// Package lostreply_test cuts the replies of a real Redis: the server has executed a
// command, and the client does not know. go-redis, with its default retries, sends the
// command again. A plain SET NX then takes our own claim for somebody else's.
package lostreply_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisproxy"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// kind of Deduper: its completions are a script, a plain SET, or SADD.
type kind struct {
	name     string
	layout   redisadapter.Layout
	seenOnly bool
}

var kinds = []kind{
	{"full", redisadapter.Full, false},
	{"full without results", redisadapter.Full, true},
	{"compact", redisadapter.Compact, true},
}

// losses records the keys whose reply was lost, by the kind of request.
type losses struct {
	mu   sync.Mutex
	keys map[string]map[string]int
}

func (l *losses) note(what string, r redisproxy.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys[what] == nil {
		l.keys[what] = map[string]int{}
	}
	keys := r.Args[1:2] // SET key
	switch {
	case named(r, "sadd"): // bucket member
		keys = [][]byte{slices.Concat(r.Args[1], r.Args[2])}
	case !named(r, "set"): // EVALSHA sha numkeys key ...
		n, _ := strconv.Atoi(string(r.Args[2]))
		keys = r.Args[3 : 3+min(n, 1)] // the keys after the first may be buckets
		if string(r.Args[1]) == redisscript.Complete.SHA1() {
			keys = r.Args[3 : 3+n]
		}
	}
	for _, key := range keys {
		l.keys[what][string(key)]++
	}
}

func named(r redisproxy.Request, command string) bool {
	return strings.EqualFold(string(r.Args[0]), command)
}

// nx reports whether a SET requires that the key is absent.
func nx(r redisproxy.Request) bool {
	return slices.ContainsFunc(r.Args[3:], func(arg []byte) bool {
		return strings.EqualFold(string(arg), "nx")
	})
}

// claims reports whether a request is a claim: SET key claim PX ms NX, mostly with GET, or
// the script that looks at what a retry found. completes reports whether it is a
// completion: SET key done PX ms GET, SADD, or a script. The script Finish looks at what a
// retry found.
func claims(r redisproxy.Request) bool {
	if named(r, "set") {
		return nx(r)
	}
	return len(r.Args) > 1 && string(r.Args[1]) == redisscript.Claim.SHA1()
}

func completes(r redisproxy.Request) bool {
	if named(r, "set") {
		return !nx(r)
	}
	return named(r, "sadd") || len(r.Args) > 1 &&
		slices.Contains([]string{redisscript.Complete.SHA1(), redisscript.Finish.SHA1()},
			string(r.Args[1]))
}

func (l *losses) count(script string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keys[script])
}

// lossy makes a Deduper that talks to Redis through a proxy that drops replies of claims
// and completions.
func lossy(t *testing.T, k kind, probability float64) (*dedup.Deduper,
	*losses, *redisproxy.Proxy) {
	t.Helper()
	proxy := redisproxy.Start(t, servertest.Redis(t))
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()}) // default retries
	t.Cleanup(func() { _ = client.Close() })
	opts := redisadapter.Options{Prefix: servertest.Prefix(t), Layout: k.layout}
	if k.layout == redisadapter.Compact {
		opts.Secret, opts.Window, opts.ExpectedKeys = []byte("sixteen bytes or more"),
			10*time.Minute, 20_000
	}
	store, err := redisadapter.New(t.Context(), client, opts)
	require.NoError(t, err)
	d, err := dedup.New(store, dedup.Config{
		Namespace: "lost", Window: 10 * time.Minute, LeaseTTL: 30 * time.Second,
		SeenOnly: k.seenOnly,
	})
	require.NoError(t, err)
	l := &losses{keys: map[string]map[string]int{}}
	rule := func(name string, match func(redisproxy.Request) bool, seed uint64) redisproxy.Rule {
		return redisproxy.Rule{
			Name: name, Match: match, Action: redisproxy.DropReply, Probability: probability,
			Seed: seed, OnFire: func(r redisproxy.Request) { l.note(name, r) },
		}
	}
	proxy.SetRules(rule("claim", claims, 1), rule("complete", completes, 2))
	return d, l, proxy
}

// untilEnough calls f from a few goroutines until enough replies were lost.
func (l *losses) untilEnough(f func(caller, round int)) {
	var wg sync.WaitGroup
	for caller := range 8 {
		wg.Go(func() {
			for round := 0; (l.count("claim") < enough || l.count("complete") < enough) &&
				round < 10_000; round++ {
				f(caller, round)
			}
		})
	}
	wg.Wait()
}

// With one key at a time, every claim is recognized as ours, and every completion is confirmed.
func TestOwnClaimsAreRecognised(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel() // they mostly wait for retries
			oneByOne(t, k)
		})
	}
}

func oneByOne(t *testing.T, k kind) {
	d, l, proxy := lossy(t, k, 0.1)
	var mu sync.Mutex
	var v checkResult
	l.untilEnough(func(caller, round int) {
		key := fmt.Sprintf("single-%d-%d", caller, round)
		c, err := d.Claim(t.Context(), key)
		mu.Lock()
		won := v.claimed(key, c, err)
		mu.Unlock()
		if !won {
			return
		}
		err = c.Complete(t.Context(), k.receipt(key))
		mu.Lock()
		v.completed(key, err)
		mu.Unlock()
	})
	report(t, l, proxy, &v)
}

// In batches: a lost reply also loses the later replies of the pipeline.
func TestOwnClaimsAreRecognisedInBatches(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel() // they mostly wait for retries
			inBatches(t, k)
		})
	}
}

// receipt is the result that is kept with a key, if there is one.
func (k kind) receipt(key string) []byte {
	if k.seenOnly {
		return nil
	}
	return []byte(key)
}

func inBatches(t *testing.T, k kind) {
	d, l, proxy := lossy(t, k, 0.1)
	var mu sync.Mutex
	var v checkResult
	l.untilEnough(func(caller, round int) {
		reqs := make([]dedup.Request, 8)
		for i := range reqs {
			reqs[i].Key = fmt.Sprintf("batch-%d-%d-%d", caller, round, i)
		}
		claims, err := d.ClaimBatch(t.Context(), reqs)
		if !assert.NoError(t, err) {
			return
		}
		mu.Lock()
		done := v.won(k, claims)
		mu.Unlock()
		errs := d.CompleteBatch(t.Context(), done)
		mu.Lock()
		defer mu.Unlock()
		for i, err := range errs {
			v.completed(done[i].Claim.Key, err)
		}
	})
	report(t, l, proxy, &v)
}

// checkResult counts the results for keys that only this test uses.
type checkResult struct {
	asked, unlearnt int
	wrong           []string
}

// claimed records a claim and reports whether it was won. An unknown outcome is correct,
// and rare; any other outcome but Acquired takes our own claim for somebody else's.
func (v *checkResult) claimed(key string, c *dedup.Claim, err error) bool {
	v.asked++
	switch {
	case c != nil && c.Outcome == dedup.Acquired:
		return true
	case dedup.OutcomeUnknown(err), err == nil && dedup.OutcomeUnknown(c.Err()):
		v.unlearnt++
	case err != nil:
		v.wrong = append(v.wrong, fmt.Sprintf("claim %s: %v", key, err))
	default:
		v.wrong = append(v.wrong, fmt.Sprintf("claim %s: %v", key, c.Outcome))
	}
	return false
}

// won records a batch of claims and returns the completions to send.
func (v *checkResult) won(k kind, claims []*dedup.Claim) (done []dedup.Completion) {
	for _, c := range claims {
		if v.claimed(c.Key, c, nil) {
			done = append(done, dedup.Completion{Claim: c, Result: k.receipt(c.Key)})
		}
	}
	return done
}

func (v *checkResult) completed(key string, err error) {
	if err != nil {
		v.wrong = append(v.wrong, fmt.Sprintf("complete %s: %v", key, err))
	}
}

func report(t *testing.T, l *losses, proxy *redisproxy.Proxy, v *checkResult) {
	t.Helper()
	stats := proxy.Stats()
	t.Logf("%d keys; replies dropped of %d claims and of %d completions (%d in all, %d more went unread); %d claims unknown, %d wrong",
		v.asked, l.count("claim"), l.count("complete"), stats.RepliesDropped, stats.Abandoned,
		v.unlearnt, len(v.wrong))
	assert.GreaterOrEqual(t, l.count("claim"), enough,
		"too few replies were lost to prove anything")
	assert.GreaterOrEqual(t, l.count("complete"), enough,
		"too few replies were lost to prove anything")
	assert.LessOrEqual(t, v.unlearnt, v.asked/100, "%d of %d claims are unknown", v.unlearnt,
		v.asked)
	if len(v.wrong) > 0 {
		slices.Sort(v.wrong)
		t.Errorf("%d of our own claims or completions were taken for somebody else's, first: %s",
			len(v.wrong), v.wrong[0])
	}
}

// The same losses with the usual pattern show that the proxy drops the replies that
// matter.
func TestPlainSetNXDisownsItsOwnClaim(t *testing.T) {
	proxy := redisproxy.Start(t, servertest.Redis(t))
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	proxy.SetRules(redisproxy.Rule{Command: "SET", Action: redisproxy.DropReply, Count: 50,
		Probability: 0.5, Seed: 3})
	disowned := 0
	for i := range 200 {
		key := fmt.Sprintf("%s:naive:%d", servertest.Prefix(t), i)
		err := client.SetArgs(t.Context(), key, "mine",
			redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err()
		if err == redis.Nil { //nolint:errorlint // go-redis returns it bare
			disowned++
		}
	}
	t.Logf("%d of %d claims whose reply was lost were called somebody else's",
		disowned, proxy.Stats().RepliesDropped)
	assert.NotZero(t, disowned,
		"the plain pattern survived: the proxy does not drop the replies that matter")
}
