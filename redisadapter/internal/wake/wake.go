// Package wake tells other processes that an attempt of a key has ended. It uses sharded pub/sub of
// Redis 7 (https://redis.io/docs/latest/develop/pubsub/), so that on a Cluster a message stays with
// the servers of the key's slot. A lost message costs only latency, because waiters also poll.
package wake

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// linger is how long a connection without listeners is kept.
	linger = time.Second
	// maxNames is how many channels a connection subscribes to. Then a new connection takes over,
	// and the old one ends with its last listener. So no channel is ever unsubscribed: that would
	// race with the next listener that subscribes.
	maxNames = 1024
)

// Channels has one connection for each server that somebody listens to. It is safe for concurrent
// use, and has a goroutine for each connection.
type Channels struct {
	client redis.UniversalClient

	mu    sync.Mutex
	feeds map[string]*feed // by server
}

// New returns the channels of a client. It sends nothing.
func New(client redis.UniversalClient) *Channels {
	return &Channels{client: client, feeds: make(map[string]*feed)}
}

// Notify wakes the listeners of each channel, in one pipeline.
func (c *Channels) Notify(ctx context.Context, names []string) error {
	pipe := c.client.Pipeline()
	for _, name := range names {
		pipe.SPublish(ctx, name, "")
	}
	_, err := pipe.Exec(ctx)
	return err
}

// Listen subscribes to a channel, and returns when the server has confirmed that. From then on it
// calls woken for each message, until stop is called or the connection is lost. woken and stop do
// not block.
func (c *Channels) Listen(ctx context.Context, name string, woken func()) (stop func(),
	err error) {
	from, at, err := c.server(ctx, name)
	if err != nil {
		return nil, err
	}
	l := &listener{woken: woken}
	f, ch, first := c.join(from, at, name, l)
	stop = sync.OnceFunc(func() { f.leave(ch, l) })
	if first {
		go f.subscribe(name) // in a goroutine: go-redis may dial, and ignores ctx then
	}
	select {
	case <-ch.ready:
	case <-ctx.Done():
		f.give(ch, context.Cause(ctx))
	}
	if err := f.ended(); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// subscriber is a client of one server, or of a Sentinel's primary.
type subscriber interface {
	SSubscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// server returns the client of the server that has the slot of a channel, and its name.
func (c *Channels) server(ctx context.Context, name string) (subscriber, string, error) {
	cluster, ok := c.client.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	})
	if !ok {
		return c.client, "", nil
	}
	node, err := cluster.MasterForKey(ctx, name)
	if err != nil {
		return nil, "", err
	}
	return node, node.Options().Addr, nil
}

// join adds a listener. first says that this listener must subscribe to the channel.
func (c *Channels) join(from subscriber, at, name string, l *listener) (f *feed, ch *channel,
	first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f = c.feeds[at]
	if f != nil && f.names[name] == nil && len(f.names) == maxNames {
		f = nil // it ends with its last listener
	}
	if f == nil {
		f = &feed{of: c, at: at, sub: from.SSubscribe(context.Background()),
			names: make(map[string]*channel)}
		c.feeds[at] = f
	}
	ch = f.names[name]
	if first = ch == nil; first {
		ch = &channel{ready: make(chan struct{}), listeners: make(map[*listener]struct{})}
		f.names[name] = ch
	}
	ch.listeners[l] = struct{}{}
	f.listeners++
	return f, ch, first
}

// feed is a connection that is subscribed to channels.
type feed struct {
	of   *Channels
	at   string
	sub  *redis.PubSub
	once sync.Once // receive
	// asking is held while subscribing. Otherwise, while no connection can be had, each channel
	// that waits for one would try to make another.
	asking sync.Mutex

	// guarded by Channels.mu
	names     map[string]*channel
	listeners int         // of all channels
	idle      *time.Timer // ends a feed without listeners
	err       error       // why it has ended
}

type channel struct {
	ready     chan struct{} // closed when the channel is subscribed to, or the feed has ended
	confirmed bool
	listeners map[*listener]struct{}
}

type listener struct{ woken func() }

var (
	errIdle  = errors.New("nobody listens")
	errMoved = errors.New("the channel has left the server")
)

// leave removes a listener. A feed that nobody listens to ends after a while.
func (f *feed) leave(ch *channel, l *listener) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	delete(ch.listeners, l)
	switch f.listeners--; {
	case f.listeners > 0 || f.err != nil:
	case f.idle == nil:
		f.idle = time.AfterFunc(linger, func() { f.endIf(f.nobody, errIdle) })
	default:
		f.idle.Reset(linger)
	}
}

// nobody reports whether there is no listener. Like all conditions of endIf it needs the mutex.
func (f *feed) nobody() bool { return f.listeners == 0 }

// give gives up a channel that was not confirmed in time, and its connection: the server may be
// gone without a word.
func (f *feed) give(ch *channel, err error) {
	f.endIf(func() bool { return !ch.confirmed }, err)
}

// ended returns why the feed has ended, or nil.
func (f *feed) ended() error {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	return f.err
}

// end closes the connection. It wakes the listeners, because they get no more messages: those that
// still wait listen again.
func (f *feed) end(err error) { f.endIf(func() bool { return true }, err) }

func (f *feed) endIf(still func() bool, err error) {
	f.of.mu.Lock()
	if f.err != nil || !still() {
		f.of.mu.Unlock()
		return
	}
	f.err = err
	if f.of.feeds[f.at] == f {
		delete(f.of.feeds, f.at)
	}
	var all []*listener
	for _, ch := range f.names {
		if !ch.confirmed {
			close(ch.ready)
			continue // nobody listens yet: Listen returns the error
		}
		all = slices.AppendSeq(all, maps.Keys(ch.listeners))
	}
	f.of.mu.Unlock()
	for _, l := range all {
		l.woken()
	}
	go func() { _ = f.sub.Close() }() // waits for a dial that is under way
}

// subscribe subscribes to a channel. The first call makes the connection, and starts receive.
func (f *feed) subscribe(name string) {
	f.asking.Lock()
	defer f.asking.Unlock()
	if f.ended() != nil {
		return
	}
	if err := f.sub.SSubscribe(context.Background(), name); err != nil {
		f.end(err)
		return
	}
	f.once.Do(func() { go f.receive() })
}

// receive hands the messages out until the connection ends.
func (f *feed) receive() {
	for {
		message, err := f.sub.Receive(context.Background())
		if err != nil {
			f.end(err)
			return
		}
		switch m := message.(type) {
		case *redis.Message:
			for _, l := range f.listening(m.Channel) {
				l.woken()
			}
		case *redis.Subscription:
			if m.Kind != "ssubscribe" { // the slot has moved to another server
				f.end(errMoved)
				return
			}
			f.confirm(m.Channel)
		}
	}
}

func (f *feed) listening(name string) (all []*listener) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if ch := f.names[name]; ch != nil {
		all = slices.AppendSeq(all, maps.Keys(ch.listeners))
	}
	return all
}

func (f *feed) confirm(name string) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if ch := f.names[name]; ch != nil && !ch.confirmed && f.err == nil {
		ch.confirmed = true
		close(ch.ready)
	}
}
