package server

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/onceward/onceward/bench/internal/must"
)

// Delay is a TCP proxy in this process that holds back everything for a while, so that a
// server on loopback looks like one across a network. It keeps order and bandwidth.
//
// It costs CPU of this process, and timers are late by up to a millisecond: only
// comparisons of sides that all go through it mean something.
type Delay struct {
	upstream string
	oneWay   time.Duration
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn // a few hundred, of clients that keep theirs
	closed bool
}

// NewDelay starts a proxy to upstream that adds oneWay in each direction.
func NewDelay(ctx context.Context, upstream string, oneWay time.Duration) *Delay {
	l := must.Get((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	d := &Delay{upstream: upstream, oneWay: oneWay, listener: l}
	d.running.Go(d.accept)
	return d
}

// Addr is where clients connect.
func (d *Delay) Addr() string { return d.listener.Addr().String() }

// Close cuts all connections and waits for the proxy's goroutines.
func (d *Delay) Close() error {
	err := d.listener.Close()
	d.mu.Lock()
	d.closed = true
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.mu.Unlock()
	d.running.Wait()
	return err
}

func (d *Delay) accept() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.running.Go(func() { d.serve(client) })
	}
}

func (d *Delay) serve(client net.Conn) {
	server, err := net.Dial("tcp", d.upstream) //nolint:noctx // Close cuts it
	if err != nil {
		_ = client.Close()
		return
	}
	if !d.keep(client, server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { d.copy(server, client) })
	both.Go(func() { d.copy(client, server) })
	both.Wait()
}

// keep notes the connections for Close, or closes them when it has been called.
func (d *Delay) keep(conns ...net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range conns {
		if d.closed {
			_ = c.Close()
		}
	}
	d.conns = append(d.conns, conns...)
	return !d.closed
}

// chunk is data on its way.
type chunk struct {
	data []byte
	due  time.Time
}

// copy passes data on when it is due. Either end's end is both ends'.
func (d *Delay) copy(to, from net.Conn) {
	way := make(chan chunk, 1024)
	var writer sync.WaitGroup
	writer.Go(func() { deliver(to, from, way) })
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if n > 0 {
			way <- chunk{buf[:n], time.Now().Add(d.oneWay)}
		}
		if err != nil {
			break
		}
	}
	close(way)
	writer.Wait()
	_ = to.Close()
}

func deliver(to, from net.Conn, way <-chan chunk) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for c := range way {
		if wait := time.Until(c.due); wait > 0 {
			timer.Reset(wait)
			<-timer.C
		}
		if _, err := to.Write(c.data); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			_ = from.Close() // the reader ends, then the channel
		}
	}
}
