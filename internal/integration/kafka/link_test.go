package kafka_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// cutDialer dials until it is cut.
type cutDialer struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	dead  bool
}

var errCut = errors.New("connection cut")

// Dial implements golang.org/x/net/proxy.Dialer.
func (d *cutDialer) Dial(network, addr string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, addr)
}

// DialContext is Dial as newer clients want it.
func (d *cutDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		_ = conn.Close()
		return nil, errCut
	}
	d.conns[conn] = true
	return conn, nil
}

// cut closes every connection and refuses new ones.
func (d *cutDialer) cut() {
	d.mu.Lock()
	d.dead = true
	d.mu.Unlock()
	d.hiccup()
}

// hiccup closes every connection; new ones are made.
func (d *cutDialer) hiccup() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for conn := range d.conns {
		_ = conn.Close()
	}
	clear(d.conns)
}

// mortal is a store that a dead process cannot reach any more, and that a frozen one
// reaches when it thaws.
type mortal struct {
	dedup.Store
	mu   sync.RWMutex
	dead bool
	ice  chan struct{} // closed by the thaw

	endsMu sync.Mutex
	ends   map[driver.ID][]driver.Answer // the store's answers to successful completions
}

var errDead = errors.New("the process is dead")

func (m *mortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
}

func (m *mortal) wasKilled() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.dead
}

// freeze makes every call from now on wait for thaw.
func (m *mortal) freeze() (thaw func()) {
	ice := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ice = ice
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.ice = nil
		close(ice)
	}
}

// reach waits while the process is frozen, and reports whether it lives. The caller calls the store
// and then done.
func (m *mortal) reach() (done func(), alive bool) {
	for {
		m.mu.RLock()
		if m.ice == nil {
			return m.mu.RUnlock, !m.dead
		}
		ice := m.ice
		m.mu.RUnlock()
		<-ice
	}
}

func dead(n int) []driver.Answer {
	answers := make([]driver.Answer, n)
	for i := range answers {
		answers[i].Err = errDead
	}
	return answers
}

func (m *mortal) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	done, ok := m.reach()
	defer done()
	if !ok {
		return dead(len(reqs))
	}
	return m.Store.Claim(ctx, reqs)
}

func (m *mortal) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	done, ok := m.reach()
	defer done()
	if !ok {
		return dead(len(renewals))
	}
	return m.Store.Renew(ctx, renewals)
}

func (m *mortal) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	done, ok := m.reach()
	defer done()
	if !ok {
		return dead(len(changes))
	}
	answers := m.Store.Finish(ctx, changes)
	for i, c := range changes {
		if c.State == driver.StateSucceeded {
			m.end(c.ID, answers[i])
		}
	}
	return answers
}

func (m *mortal) end(id driver.ID, ans driver.Answer) {
	m.endsMu.Lock()
	defer m.endsMu.Unlock()
	if m.ends == nil {
		m.ends = map[driver.ID][]driver.Answer{}
	}
	m.ends[id] = append(m.ends[id], ans)
}

// endsOf returns what the store answered this process when it recorded the effect of an id.
func (m *mortal) endsOf(id string) []driver.Answer {
	key, err := driver.NewID("t", sceneScope, id)
	if err != nil {
		panic(err) // ids of the tests fit
	}
	m.endsMu.Lock()
	defer m.endsMu.Unlock()
	return m.ends[key]
}
