package kafka_test

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A decision says what a tapDialer does to a request.
type decision int

const (
	pass      decision = iota
	loseReply          // the broker gets it and answers, and the connection breaks
	cutHere            // the connection breaks before the request
)

// tapDialer dials connections that break at requests of a kind.
type tapDialer struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	dead  bool
	judge func(key int16) decision
	final bool          // the first break cuts all connections
	died  chan struct{} // closed then
}

func newTap() *tapDialer {
	return &tapDialer{conns: map[net.Conn]bool{}, died: make(chan struct{})}
}

// tap makes judge decide about every request from now on.
func (d *tapDialer) tap(judge func(key int16) decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.judge = judge
}

// dieAt cuts all connections of the process at the n-th request of a kind.
func (d *tapDialer) dieAt(key int16, n int64, how decision) {
	d.mu.Lock()
	d.final = true
	d.mu.Unlock()
	var seen atomic.Int64
	d.tap(func(k int16) decision {
		if k == key && seen.Add(1) == n {
			return how
		}
		return pass
	})
}

// broke notes that a connection broke as it was meant to.
func (d *tapDialer) broke() {
	d.mu.Lock()
	final := d.final
	d.mu.Unlock()
	if final {
		d.kill()
		close(d.died)
	}
}

// kill cuts all connections, and refuses new ones.
func (d *tapDialer) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
	for conn := range d.conns {
		_ = conn.Close()
	}
}

// revive undoes a kill.
func (d *tapDialer) revive() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = false
}

// Dial implements golang.org/x/net/proxy.Dialer.
func (d *tapDialer) Dial(network, addr string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, addr, 5*time.Second)
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
	return &tappedConn{Conn: conn, dialer: d}, nil
}

// tappedConn judges requests as they are written: sarama writes one at a time, whole.
type tappedConn struct {
	net.Conn
	dialer *tapDialer
	mu     sync.Mutex
	then   decision // of the request on its way
}

var errTapped = errors.New("connection lost")

// Write implements net.Conn.
func (c *tappedConn) Write(b []byte) (int, error) {
	c.dialer.mu.Lock()
	judge := c.dialer.judge
	c.dialer.mu.Unlock()
	if judge == nil || len(b) < 6 {
		return c.Conn.Write(b)
	}
	v := judge(int16(binary.BigEndian.Uint16(b[4:])))
	if v == cutHere {
		_ = c.Close()
		c.dialer.broke()
		return 0, errTapped
	}
	c.mu.Lock()
	c.then = v
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	v := c.then
	c.then = pass
	c.mu.Unlock()
	if v == loseReply && err == nil {
		_ = c.Close()
		c.dialer.broke()
		return 0, errTapped
	}
	return n, err
}
