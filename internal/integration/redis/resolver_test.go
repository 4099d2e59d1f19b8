package redis_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/resolver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

const (
	dieChild = "ONCEWARD_TEST_DIE_CHILD"
	// doomed is how many attempts are killed.
	doomed = 100
	// doomedLease is that of all attempts.
	doomedLease = 2 * time.Second
)

// gateway is a downstream that counts payments by idempotency key, under its own keys in Redis.
type gateway struct {
	client *redis.Client
	key    string

	mu    sync.Mutex
	asked map[driver.ID]int
	busy  map[driver.ID]bool
	twice int // asks about a key that was being asked about
}

func (g *gateway) pay(ctx context.Context) (string, error) {
	a, _ := dedup.FromContext(ctx)
	if err := dedup.MarkIrreversible(ctx); err != nil {
		return "", dedup.NotStarted(err)
	}
	return "paid", g.client.HIncrBy(ctx, g.key, a.DownstreamKey("pay"), 1).Err()
}

// ask is resolver.Config.Ask.
func (g *gateway) ask(ctx context.Context, u resolver.UncertainRecord) (dedup.Resolution, error) {
	g.mu.Lock()
	if g.busy[u.ID] {
		g.twice++
	}
	g.busy[u.ID] = true
	g.asked[u.ID]++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.busy[u.ID] = false
	}()
	paid, err := g.client.HExists(ctx, g.key, u.ID.DownstreamKey("pay")).Result()
	switch {
	case err != nil:
		return dedup.Resolution{}, err
	case paid:
		return dedup.Happened([]byte("paid")), nil
	}
	return dedup.DidNotHappen(), nil
}

// cell is what a process needs to know to work on the same keys.
type cell struct {
	addrs, bank, prefix string
	layout              int
	cluster             bool
}

func (c cell) String() string {
	return fmt.Sprintf("%s %s %s %d %t", c.addrs, c.bank, c.prefix, c.layout, c.cluster)
}

func (c cell) client(t *testing.T) redis.UniversalClient {
	t.Helper()
	if c.cluster {
		return advised(t, strings.Split(c.addrs, ","))
	}
	return single(t, &redis.Options{Addr: c.addrs})
}

func (c cell) open(t *testing.T) (*redisadapter.Store, *dedup.Deduper) {
	t.Helper()
	l := layouts[c.layout]
	l.options.Prefix = c.prefix
	store, err := redisadapter.New(t.Context(), c.client(t), l.options)
	require.NoError(t, err)
	cfg := dedup.Config{Namespace: "pay", Window: window, LeaseTTL: doomedLease}
	if l.config != nil {
		l.config(&cfg)
	}
	d, err := dedup.New(store, cfg)
	require.NoError(t, err)
	return store, d
}

// TestResolversAfterKills kills attempts past their point of no return, among many other keys.
// Every one is listed, and nothing else. Three resolvers bring all to an end without a new
// delivery, and never ask about one twice at a time.
func TestResolversAfterKills(t *testing.T) {
	if task := os.Getenv(dieChild); task != "" {
		payAndDie(t, task)
		return
	}
	single := servertest.Private(t, servertest.KindRedis)
	many := servertest.Private(t, servertest.KindRedisCluster)
	for name, c := range map[string]cell{
		"full":             {addrs: single.Addr, layout: 0},
		"compact":          {addrs: single.Addr, layout: 2},
		"cluster, full":    {addrs: strings.Join(many.Addrs, ","), layout: 0, cluster: true},
		"cluster, compact": {addrs: strings.Join(many.Addrs, ","), layout: 2, cluster: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.bank, c.prefix = single.Addr, servertest.Prefix(t)
			g := c.gateway(t)
			store, d := c.open(t)
			c.crowd(t)
			killPayers(t, c)
			alive := c.inFlight(t, d)

			var listed map[driver.ID]bool
			eventually(t, doomedLease, "all that were killed are uncertain", func() bool {
				listed = uncertainKeys(t, store)
				return len(listed) >= doomed
			})
			began := time.Now()
			listed = uncertainKeys(t, store)
			t.Logf("%d uncertain keys among %d others, listed in %v", len(listed), others,
				time.Since(began))
			assert.Len(t, listed, doomed)

			resolved := c.resolve(t, g)
			assert.Equal(t, doomed/2, resolved.Succeeded, "%+v", resolved)
			assert.Equal(t, doomed/2, resolved.Released, "%+v", resolved)
			assert.Len(t, g.asked, doomed)
			assert.Zero(t, g.twice, "a key was asked about twice at a time")
			for id, n := range g.asked {
				assert.Equal(t, 1, n, "asks about %x", id)
				assert.True(t, listed[id])
			}
			alive()
			c.deliver(t, d, g)
		})
	}
}

// gateway returns the downstream of a cell.
func (c cell) gateway(t *testing.T) *gateway {
	t.Helper()
	return &gateway{client: single(t, &redis.Options{Addr: c.bank}), key: c.prefix + "_ledger",
		asked: map[driver.ID]int{}, busy: map[driver.ID]bool{}}
}

// crowd puts other keys of the same prefix into the server, as finished keys are.
func (c cell) crowd(t *testing.T) {
	t.Helper()
	client := c.client(t)
	value := strings.Repeat("x", 40)
	for n := 0; n < others; n += 5000 {
		pipe := client.Pipeline()
		for i := n; i < min(n+5000, others); i++ {
			pipe.Set(t.Context(), fmt.Sprintf("%s:{other-%d}", c.prefix, i), value, time.Hour)
		}
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
	}
}

// inFlight begins attempts that run until end is called, half of them past their point of no
// return.
func (c cell) inFlight(t *testing.T, d *dedup.Deduper) (end func()) {
	t.Helper()
	var running sync.WaitGroup
	stop := make(chan struct{})
	var begun sync.WaitGroup
	for i := range 20 {
		begun.Add(1)
		running.Go(func() {
			_, err := dedup.Do(t.Context(), d, fmt.Sprintf("alive %d", i),
				func(ctx context.Context) (string, error) {
					var err error
					if i%2 == 0 {
						err = dedup.MarkIrreversible(ctx)
					}
					begun.Done()
					<-stop
					return "", err
				})
			assert.NoError(t, err)
		})
	}
	begun.Wait()
	return func() {
		close(stop)
		running.Wait()
	}
}

func uncertainKeys(t *testing.T, store *redisadapter.Store) map[driver.ID]bool {
	t.Helper()
	all := map[driver.ID]bool{}
	for cursor := ""; ; {
		page, next, err := store.Uncertain(t.Context(), cursor, 0)
		require.NoError(t, err)
		for i := range page {
			all[page[i].ID] = true
		}
		if next == "" {
			return all
		}
		cursor = next
	}
}

// resolve runs three resolvers, each with a store of its own as in three processes, until no key is
// uncertain.
func (c cell) resolve(t *testing.T, g *gateway) (sum resolver.Resolved) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 3 {
		store, _ := c.open(t)
		r, err := resolver.New(store, resolver.Config{Window: window, Ask: g.ask,
			Failed: func(err error) { t.Error(err) }})
		require.NoError(t, err)
		all.Go(func() {
			for len(uncertainKeys(t, store)) > 0 && ctx.Err() == nil {
				found, err := r.Pass(ctx)
				assert.NoError(t, err)
				mu.Lock()
				sum.Succeeded += found.Succeeded
				sum.Released += found.Released
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return sum
}

// deliver delivers all messages once more: nothing is paid again.
func (c cell) deliver(t *testing.T, d *dedup.Deduper, g *gateway) {
	t.Helper()
	for i := range doomed {
		res, err := dedup.DoResult(t.Context(), d, fmt.Sprintf("order %d", i), g.pay)
		want := driver.Acquired
		if i%2 == 0 {
			want = driver.Duplicate
		}
		if want == driver.Acquired || layouts[c.layout].result != nil {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, dedup.ErrNoResult)
		}
		assert.Equal(t, want, res.Outcome, "order %d", i)
	}
	ledger, err := g.client.HGetAll(t.Context(), g.key).Result()
	require.NoError(t, err)
	assert.Len(t, ledger, doomed)
	for key, n := range ledger {
		assert.Equal(t, "1", n, "payments of %s", key)
	}
}

// killPayers runs this test in a child process, and kills it when all its attempts have passed
// their point of no return.
func killPayers(t *testing.T, c cell) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestResolversAfterKills$")
	child.Env = append(os.Environ(), dieChild+"="+c.String())
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // always an error: it was killed
	require.Equal(t, "ready\n", line, "%v", err)
}

// payAndDie is the other side of killPayers: it never returns by itself. Every second attempt has
// paid.
func payAndDie(t *testing.T, task string) {
	t.Helper()
	var c cell
	_, err := fmt.Sscanf(task, "%s %s %s %d %t", &c.addrs, &c.bank, &c.prefix, &c.layout,
		&c.cluster)
	require.NoError(t, err)
	g := c.gateway(t)
	_, d := c.open(t)
	var begun sync.WaitGroup
	for i := range doomed {
		begun.Add(1)
		go func() {
			_, err := dedup.Do(context.Background(), d, fmt.Sprintf("order %d", i),
				func(ctx context.Context) (string, error) {
					err := dedup.MarkIrreversible(ctx)
					if i%2 == 0 && err == nil {
						_, err = g.pay(ctx)
					}
					if err != nil {
						return "", err
					}
					begun.Done()
					<-context.Background().Done() // the parent's SIGKILL ends it
					return "", nil
				})
			fmt.Fprintln(os.Stderr, "child:", err)
		}()
	}
	begun.Wait()
	fmt.Println("ready")
	<-context.Background().Done()
}
