package torture_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/servertest"
)

// pair is a primary and its replica, behind an address that the test leads to either of them.
type pair struct {
	*servertest.Server
	nodes  [2]*redis.Client
	name   string
	target atomic.Int32 // the node that the name leads to, counted from 0
	mu     sync.Mutex
	open   map[net.Conn]bool
}

func newPair(c *conductor, s *servertest.Server) *pair {
	c.t.Helper()
	p := &pair{Server: s, open: map[net.Conn]bool{}}
	for i, addr := range s.Addrs {
		p.nodes[i] = redis.NewClient(&redis.Options{Addr: addr})
		c.t.Cleanup(func() { _ = p.nodes[i].Close() })
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	c.must(err)
	p.name = l.Addr().String()
	var going sync.WaitGroup
	c.t.Cleanup(func() { _ = l.Close(); p.cut(); going.Wait() })
	going.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			going.Go(func() { p.serve(client) })
		}
	})
	return p
}

// serve copies both ways until either end is closed.
func (p *pair) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.Addrs[p.target.Load()])
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.open[client], p.open[server] = true, true
	p.mu.Unlock()
	over := func() { _, _ = client.Close(), server.Close() }
	var going sync.WaitGroup
	going.Go(func() { _, _ = io.Copy(server, client); over() })
	_, _ = io.Copy(client, server)
	over()
	going.Wait()
	p.mu.Lock()
	delete(p.open, client)
	delete(p.open, server)
	p.mu.Unlock()
}

// cut ends all connections.
func (p *pair) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
}

// promote kills the primary, promotes its replica, and makes the name lead there. Writes that the
// replica did not have yet are lost. Afterwards the old primary comes back as the replica.
func promote(c *conductor, s *servers, times int) []*nemesis {
	return promotions(c, s, times, strikeAmnesia)
}

// promoteWaited does the same where the replica has everything that the primary has acknowledged.
func promoteWaited(c *conductor, s *servers, times int) []*nemesis {
	return promotions(c, s, times, strikeOutage)
}

func promotions(c *conductor, s *servers, times int, code strikeCode) []*nemesis {
	p := s.pair
	c.linked(p)
	return []*nemesis{{
		name: "promoted", code: code, times: times, lasts: 300 * time.Millisecond, echo: dialing,
		begin: func(c *conductor) {
			old := p.target.Load()
			p.Kill(int(old) + 1)
			c.must(p.nodes[1-old].Do(c.t.Context(), "REPLICAOF", "NO", "ONE").Err())
			p.target.Store(1 - old)
			p.cut()
		},
		end: func(c *conductor) {
			now := p.target.Load()
			p.Start(int(1-now) + 1)
			host, port, err := net.SplitHostPort(p.Addrs[now])
			c.must(err)
			c.must(p.nodes[1-now].Do(c.t.Context(), "REPLICAOF", host, port).Err())
			c.linked(p)
		},
	}}
}

// linked waits until the replica follows its primary.
func (c *conductor) linked(p *pair) {
	c.t.Helper()
	replica := p.nodes[1-p.target.Load()]
	for limit := time.After(time.Minute); ; {
		text, err := replica.Info(c.t.Context(), "replication").Result()
		if err == nil && strings.Contains(text, "master_link_status:up") {
			return
		}
		select {
		case <-limit:
			c.t.Fatalf("the replica does not follow: %v, %s", err, text)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
