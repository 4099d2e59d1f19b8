package guarantees_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisproxy"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// wireFault is what happens to a request, and to those after it.
type wireFault struct {
	name   string
	action redisproxy.Action
	bytes  int
}

var wireFaults = []wireFault{
	{"request lost", redisproxy.DropRequest, 0},
	{"reply lost", redisproxy.DropReply, 0},
	{"reply torn", redisproxy.TearReply, 2},
	{"pipeline cut", redisproxy.CutPipeline, 0},
}

// failure is what happens to the worker, its connection or the server after the fault.
type failure string

const (
	workerDies     failure = "the worker dies"
	connectionCut  failure = "the connection is cut"
	serverRestarts failure = "the server restarts"
)

var failures = []failure{workerDies, connectionCut, serverRestarts}

// server is a Redis whose clock the test moves.
type server struct {
	*redistest.Frozen

	direct *redis.Client
	cases  int
	// down is held while the server restarts.
	down sync.RWMutex
}

// restart ends every connection, and makes clients that dial again wait. Without the wait they
// would fail: a client tries only three times, some milliseconds apart.
func (s *server) restart() error {
	s.down.Lock()
	defer s.down.Unlock()
	s.Close()
	return s.Restart()
}

// whenUp waits until the server is up, and dials.
func (s *server) whenUp(ctx context.Context, network, addr string) (net.Conn, error) {
	s.down.RLock()
	defer s.down.RUnlock()
	return new(net.Dialer).DialContext(ctx, network, addr)
}

func newServer(t *testing.T) *server {
	f, client := redistest.Freeze(t)
	return &server{Frozen: f, direct: client}
}

// wire is one case: a scenario, a fault at its nth request, and the failure after it.
type wire struct {
	*scenario

	t      *testing.T
	server *server
	prefix string
	run    *run
}

func (w *wire) options() redisadapter.Options {
	o := redisadapter.Options{Prefix: w.prefix, Layout: w.kind.layout}
	if w.kind.layout == redisadapter.Compact {
		o.Secret, o.Window, o.ExpectedKeys = []byte("sixteen bytes or more"), window, 1000
	}
	return o
}

// process opens the store over a client.
func (w *wire) process(client *redis.Client, dead func() bool) *runner {
	w.t.Helper()
	store, err := redisadapter.New(context.Background(), client, w.options())
	require.NoError(w.t, err)
	d, err := dedup.New(store, dedup.Config{
		Namespace: "wire", Window: window, LeaseTTL: time.Minute, SeenOnly: w.kind.seenOnly,
		Resolve: func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			if w.run.of(w.run.keys[0]) > 0 {
				return dedup.Happened(nil), nil
			}
			return dedup.DidNotHappen(), nil
		},
	})
	require.NoError(w.t, err)
	return &runner{run: w.run, d: d, redis: store, dead: dead}
}

// data reports whether a request is for the store, and not one that clients send by themselves.
func data(r redisproxy.Request) bool {
	switch r.Name() {
	case "HELLO", "CLIENT", "PING", "INFO", "TIME", "AUTH", "SELECT":
		return false
	}
	return true
}

// struck is a fault that may have happened.
type struck struct {
	dead, fired atomic.Bool
	command     string
	hit, died   chan struct{}
}

// strike makes the fault happen at the nth request.
func strike(proxy *redisproxy.Proxy, n int, f wireFault, end failure) *struck {
	s := &struck{hit: make(chan struct{}), died: make(chan struct{})}
	seen := 0 // guarded by the proxy's lock, as all of match
	match := func(r redisproxy.Request) bool {
		if s.fired.Load() || !data(r) {
			return false
		}
		if seen++; seen < n {
			return false
		}
		s.command = r.Name()
		s.dead.Store(end == workerDies)
		s.fired.Store(true)
		return true
	}
	proxy.SetRules(
		redisproxy.Rule{Name: "fault", Match: match, Action: f.action, Bytes: f.bytes,
			OnFire: func(redisproxy.Request) {
				close(s.hit)
				if end == workerDies {
					close(s.died)
				}
			}},
		redisproxy.Rule{Name: "dead", Match: func(redisproxy.Request) bool {
			return s.dead.Load()
		}, Action: redisproxy.DropRequest},
	)
	return s
}

// through runs the case, and reports whether the life has an nth request.
func (w *wire) through(n int, f wireFault, end failure, v *caseCounts) (command string, came bool) {
	w.server.cases++
	w.prefix = fmt.Sprint("ow", w.server.cases)
	w.run = &run{effects: map[string]int{}}
	for i := range max(w.keys, 1) {
		w.run.keys = append(w.run.keys, fmt.Sprintf("m%d-%d", w.server.cases, i))
	}
	next := w.process(w.server.direct, func() bool { return false })
	if w.done {
		require.NoError(w.t, single(context.Background(), next))
	}
	proxy, err := redisproxy.New(w.server.Addr())
	require.NoError(w.t, err)
	defer proxy.Close()
	client := redis.NewClient(&redis.Options{
		Addr: proxy.Addr(), MinRetryBackoff: time.Millisecond,
		MaxRetryBackoff: 10 * time.Millisecond, DialerRetries: 1, Dialer: w.server.whenUp,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	})
	defer func() { _ = client.Close() }()
	var s *struck
	p := w.process(client, func() bool { return s.dead.Load() })
	s = strike(proxy, n, f, end)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	told := make(chan error, 1)
	go func() {
		err := errDead
		defer func() { told <- err }()
		err = w.first(ctx, p)
	}()
	first := w.wait(s, end, told)
	if !s.fired.Load() {
		return "", false
	}
	was := w.look(next)
	w.redeliver(next)
	w.judge(w.t, w.run, v, was, end == workerDies, first, w.count)
	return s.command, true
}

// wait returns the error of the process, or errDead if it is dead. It restarts the server if end
// says so.
func (w *wire) wait(s *struck, end failure, told chan error) error {
	if end == serverRestarts {
		select {
		case <-s.hit:
			require.NoError(w.t, w.server.restart())
		case err := <-told:
			told <- err
		}
	}
	select {
	case <-s.died:
		return errDead
	case err := <-told:
		return err
	}
}

// count returns how many effects a key has had: from the counter next to its record, or from the
// run.
func (w *wire) count(k string) int {
	if !w.atomic {
		return w.run.of(k)
	}
	return (&till{t: w.t, client: w.server.direct}).of(k)
}

// look reads the state of the keys after the fault.
func (w *wire) look(next *runner) map[string]stored {
	was := map[string]stored{}
	for _, k := range w.run.keys {
		rec, err := next.d.Lookup(context.Background(), k)
		require.NoError(w.t, err)
		was[k] = stored{
			recorded: rec.State == driver.StateSucceeded || rec.State == driver.StateFailed,
			absent:   rec.State == driver.StateAbsent, effects: w.count(k),
		}
	}
	return was
}

// redeliver lets the leases of the dead process expire, and delivers until the message is
// acknowledged.
func (w *wire) redeliver(next *runner) {
	w.t.Helper()
	for range 10 {
		err := w.again(context.Background(), next)
		if err == nil {
			return
		}
		require.False(w.t, !errors.Is(err, dedup.ErrInFlight) && !errors.Is(err, errBusy),
			"the redelivery got %v", err)
		w.server.Advance(2 * time.Minute)
	}
	w.t.Fatal("in flight forever")
}

// TestEveryRequestOnTheWire: whichever request of a message's life meets a fault, the message has
// its effect. It has it twice only where the table says so.
func TestEveryRequestOnTheWire(t *testing.T) {
	var total caseCounts
	for _, l := range scenarios() {
		t.Run(l.String(), func(t *testing.T) {
			var v caseCounts
			var points []string
			w := &wire{scenario: &l, t: t, server: newServer(t)}
			for _, end := range failures {
				for _, f := range wireFaults {
					for n := 1; ; n++ {
						command, came := w.through(n, f, end, &v)
						if !came {
							break
						}
						if end == connectionCut && f.action == redisproxy.DropRequest {
							points = append(points, command)
						}
						require.False(t, t.Failed(), "%s of request %d (%s), %s", f.name, n,
							command, end)
						require.LessOrEqual(t, n, 50, "the scenario never ends")
					}
				}
			}
			t.Logf("%d cases at %s: %d deaths, %d doubles that the table allows", v.cases,
				strings.Join(points, " "), v.deaths, v.doubles)
			assert.NotZero(t, v.cases, "no case ran")
			total.cases, total.deaths = total.cases+v.cases, total.deaths+v.deaths
			total.doubles, total.forgets = total.doubles+v.doubles, total.forgets+v.forgets
		})
	}
	t.Logf("%d cases, %d deaths: 0 lost, %d doubles, each by a death between effect and record",
		total.cases, total.deaths, total.doubles)
	assert.False(t, !t.Failed() && (total.doubles == 0 || total.forgets == 0),
		"no death between effect and record: the faults miss their targets")
}
