package redisproxy

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds the connection to the server; it is on the same machine.
const dialTimeout = 5 * time.Second

// Stats counts what the proxy did. When all connections have ended, Requests is the sum
// of Replies, RepliesDropped, RepliesTorn and Abandoned.
type Stats struct {
	// Connections that were accepted.
	Connections int
	// Requests forwarded to the server.
	Requests int
	// Replies delivered in full.
	Replies int
	// Pushes delivered, in RESP3.
	Pushes int
	// RepliesDropped counts replies that were read from the server and withheld. Each is
	// a command that was executed without the client knowing.
	RepliesDropped int
	// RepliesTorn counts replies of which a part was delivered.
	RepliesTorn int
	// RequestsDropped counts commands that a rule kept from the server; those behind
	// them on the same connection are not counted.
	RequestsDropped int
	// PipelinesCut counts CutPipeline.
	PipelinesCut int
	// Delayed counts delays that have begun.
	Delayed int
	// Abandoned counts requests that were forwarded and whose reply was not awaited,
	// because the connection ended before. They may have been executed.
	Abandoned int
	// Fired counts by the name of the rule.
	Fired map[string]int
}

// Proxy is a running proxy. Make it with [New] or [Start]. Safe for concurrent use.
type Proxy struct {
	upstream string
	listener net.Listener
	cancel   context.CancelFunc
	wg       sync.WaitGroup // the acceptor and every pump

	mu       sync.Mutex
	closed   bool
	rules    []*liveRule
	stats    Stats
	sessions map[*session]struct{}
}

// New listens on a port of the loopback interface and forwards to upstream, a host:port.
// It connects to the server only when a client connects. Close it.
func New(upstream string) (*Proxy, error) {
	if _, _, err := net.SplitHostPort(upstream); err != nil {
		return nil, fmt.Errorf("redisproxy: upstream: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		return nil, fmt.Errorf("redisproxy: %w", err)
	}
	p := &Proxy{upstream: upstream, listener: l, cancel: cancel, sessions: map[*session]struct{}{}}
	p.stats.Fired = map[string]int{}
	p.wg.Go(func() { p.accept(ctx) })
	return p, nil
}

// T is the part of *testing.T that [Start] needs.
type T interface {
	// Helper marks the calling function as a test helper.
	Helper()
	// Fatal ends the test.
	Fatal(args ...any)
	// Cleanup runs at the end of the test.
	Cleanup(func())
}

// Start is [New] for a test: it closes the proxy when the test ends.
func Start(t T, upstream string) *Proxy {
	t.Helper()
	p, err := New(upstream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Addr returns the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetRules replaces all rules and their counts, also for connections that are open;
// without rules the proxy only forwards. The first rule that fires on a request, and the
// first that fires on its reply, decide. SetRules panics on a rule that cannot work,
// which is a mistake in the test.
func (p *Proxy) SetRules(rules ...Rule) {
	live := make([]*liveRule, len(rules))
	for i, r := range rules {
		if err := r.check(); err != nil {
			panic(err)
		}
		live[i] = newLiveRule(r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = live
}

// Stats returns the counts since the start.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Fired = maps.Clone(s.Fired)
	return s
}

// Close ends all connections, stops listening and waits for its goroutines. It may be
// called more than once.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	open := make([]*session, 0, len(p.sessions))
	for s := range p.sessions {
		open = append(open, s)
	}
	p.mu.Unlock()
	p.cancel()
	_ = p.listener.Close() // an error means that it was closed before
	for _, s := range open {
		s.close()
	}
	p.wg.Wait()
}

func (p *Proxy) accept(ctx context.Context) {
	for conn := 1; ; conn++ {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.serve(ctx, conn, client) })
	}
}

// serve runs one connection until it has ended.
func (p *Proxy) serve(ctx context.Context, conn int, client net.Conn) {
	p.count(func(s *Stats) { s.Connections++ })
	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(ctx, "tcp", p.upstream)
	if err != nil {
		_ = client.Close() // the client sees a dead server, a little later
		return
	}
	s := newSession(p, conn, client, server)
	if !p.track(s) {
		s.close()
		return
	}
	s.run()
	p.untrack(s)
}

// track refuses a session that began while the proxy was being closed: Close would not
// know of it and would wait forever.
func (p *Proxy) track(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.sessions[s] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) untrack(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s)
}

// decide returns the rule that fires on a request, or on its reply; nil for none.
func (p *Proxy) decide(req Request, reply bool) *Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.Action.onReply() == reply && r.fires(req) {
			rule := r.Rule
			return &rule
		}
	}
	return nil
}

func (p *Proxy) count(change func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.stats)
}

// record counts an action. It is called before the action shows, so that a test that has
// seen the fault finds it counted.
func (p *Proxy) record(rule *Rule) {
	p.count(func(s *Stats) {
		s.Fired[rule.Name]++
		switch rule.Action {
		case DropReply:
			s.RepliesDropped++
		case TearReply:
			s.RepliesTorn++
		case DropRequest:
			s.RequestsDropped++
		case CutPipeline:
			s.PipelinesCut++
		case DelayReply, DelayRequest:
			s.Delayed++
		}
	})
}
