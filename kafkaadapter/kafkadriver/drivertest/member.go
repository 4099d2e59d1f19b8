package drivertest

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// member is a consumer that runs.
type member struct {
	s        *scene
	consumer Consumer
	line     *line
	link     *link
	cancel   context.CancelFunc
	done     chan error
}

// change changes a member's usual settings.
type change = func(*Member)

// configured changes only the configuration.
func configured(f func(*kafkaadapter.Config)) change {
	return func(m *Member) { f(&m.Config) }
}

func draining(d time.Duration) change {
	return configured(func(c *kafkaadapter.Config) { c.Tuning.Drain = d })
}

// deduper makes a Deduper on a store.
func (s *scene) deduper(store dedup.Store) *dedup.Deduper {
	s.Helper()
	d, err := dedup.New(store, dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: s.lease,
		Hold: time.Minute, Labels: true})
	require.NoError(s, err)
	return d
}

// config returns a member's configuration, with limits that suit a test.
func (s *scene) config(store dedup.Store, handle kafkaadapter.Handler) kafkaadapter.Config {
	s.Helper()
	return kafkaadapter.Config{
		Deduper: s.deduper(store),
		Tuning:  kafkaadapter.Tuning{Drain: time.Second, CommitEvery: 50 * time.Millisecond},
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond,
			RetryMax: 300 * time.Millisecond},
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			if handle != nil {
				if err := handle(ctx, m); err != nil {
					return err
				}
			}
			s.affect(m)
			return nil
		},
		Observer: kafkaadapter.Observer{
			Delivered: func(*kafkaadapter.Message) { s.note("delivered") },
			MissingID: func(*kafkaadapter.Message) { s.note("without id") },
			Skipped: func(*kafkaadapter.Message, driver.Cause, time.Duration) {
				s.note("skipped")
			},
			Assigned: func(string, int32, int32) { s.note("assigned") },
			Revoked:  func(string, int32, int, int) { s.note("revoked") },
			GroupError: func(err error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.errs = append(s.errs, err)
			},
		},
	}
}

// newMember makes a member that does not run.
func (s *scene) newMember(handle kafkaadapter.Handler, changes ...change) (*member, Member) {
	s.Helper()
	m := &member{s: s, line: newLine(), link: &link{Store: s.store}, done: make(chan error, 1)}
	with := Member{Brokers: s.cluster.ListenAddrs(), Group: group, Topics: []string{orders},
		Mode: s.mode, Session: 30 * time.Second, Rebalance: 15 * time.Second, Dial: m.line.dial,
		Config: s.config(m.link, handle)}
	for _, f := range changes {
		f(&with)
	}
	var err error
	m.consumer, err = s.d.New(with)
	require.NoError(s, err)
	return m, with
}

// join starts a member.
func (s *scene) join(handle kafkaadapter.Handler, changes ...change) *member {
	s.Helper()
	m, with := s.newMember(handle, changes...)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	m.cancel = cancel
	go func() {
		m.done <- m.consumer.Run(ctx)
		if d := with.Config.Deduper; d != nil {
			_ = d.Close(context.WithoutCancel(ctx))
		}
	}()
	s.Cleanup(cancel)
	return m
}

// leave ends a member as a deployment would.
func (m *member) leave() {
	m.s.Helper()
	m.cancel()
	assert.NoError(m.s, m.wait(), "Run")
}

// wait returns the result of Run.
func (m *member) wait() error {
	m.s.Helper()
	select {
	case err := <-m.done:
		return err
	case <-time.After(patience):
		require.FailNow(m.s, "Run does not return")
		return nil
	}
}

// crash cuts a member off from brokers and store.
func (m *member) crash() {
	m.link.set(true)
	m.line.cut()
	m.cancel()
}

// gateway is a handler that holds all messages until it is opened.
type gateway struct {
	inside chan struct{} // closed by the first one
	open   chan struct{}
	first  sync.Once
	left   chan struct{} // closed by the first canceled one
	deaf   bool          // ignores its context

	mu      sync.Mutex
	entered int
	causes  []error // of contexts that ended
}

func newGateway() *gateway {
	return &gateway{inside: make(chan struct{}), open: make(chan struct{}),
		left: make(chan struct{})}
}

func (g *gateway) handle(ctx context.Context, _ *kafkaadapter.Message) error {
	g.mu.Lock()
	g.entered++
	g.mu.Unlock()
	g.first.Do(func() { close(g.inside) })
	ended := ctx.Done()
	if g.deaf {
		ended = nil
	}
	select {
	case <-g.open:
		return nil
	case <-ended:
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.causes = append(g.causes, context.Cause(ctx)); len(g.causes) == 1 {
			close(g.left)
		}
		return context.Cause(ctx)
	}
}

// only returns a handler that sends the chosen messages through the gateway, and is done with all
// others at once.
func (g *gateway) only(chosen func(*kafkaadapter.Message) bool) kafkaadapter.Handler {
	return func(ctx context.Context, m *kafkaadapter.Message) error {
		if chosen(m) {
			return g.handle(ctx, m)
		}
		return nil
	}
}

// running returns how many messages have come to the gateway.
func (g *gateway) running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entered
}

func (g *gateway) ended() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]error(nil), g.causes...)
}

// line is the network of one member.
type line struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	dead  bool
}

func newLine() *line { return &line{conns: map[net.Conn]bool{}} }

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = conn.Close()
		return nil, errCut
	}
	l.conns[conn] = true
	return conn, nil
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for conn := range l.conns {
		_ = conn.Close()
	}
}
