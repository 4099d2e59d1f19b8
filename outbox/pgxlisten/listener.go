// Package pgxlisten wakes the relays of a process when another process has inserted messages: it
// listens for the notifications of an [outbox.Notifier].
//
//	// in a process that inserts
//	notifier, err := outbox.NewNotifier(outbox.NotifierConfig{Outbox: box, DB: db})
//	go notifier.Run(ctx)
//	...
//	err = tx.Commit()
//	box.Notify()
//
//	// in a process with relays
//	listener, err := pgxlisten.New(pgxlisten.Config{
//		Outbox:  box,
//		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, dsn) },
//	})
//	go listener.Run(ctx)
//	err = relay.Run(ctx)
//
// A missed notification costs only the time until the next poll.
//
// A [Waker] does the same for the waiters of a dedup.Deduper over sqlstore.Store.
package pgxlisten

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceward/onceward/outbox"
)

// DefaultSilence is the default of Config.Silence.
const DefaultSilence = 10 * time.Second

// Config says where to listen. Outbox and Connect are required.
type Config struct {
	// Outbox whose relays are woken. No default.
	Outbox *outbox.Outbox
	// Connect returns a new connection, which the Listener closes. It must not go through a pooler
	// that gives the server's connection to others after a transaction. No default.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	// Silence is the time without a notification after which the Listener pings the connection: a
	// lost one may not show an error. A millisecond to an hour. Default: [DefaultSilence].
	Silence time.Duration
	// OnError gets the error of a connection that was lost or could not be made. It must return
	// soon. Default: errors are dropped.
	OnError func(err error)
}

// Listener holds one connection while it runs. Make it with [New].
type Listener struct{ channel *channel }

// New checks the configuration; an [*outbox.InputError] names the field. It does not connect.
func New(cfg Config) (*Listener, error) {
	bad := func(field, reason string) error {
		return &outbox.InputError{Field: field, Reason: reason}
	}
	if cfg.Outbox.Channel() == "" {
		return nil, bad("Outbox", "is nil or was not made by New")
	}
	c := &channel{name: cfg.Outbox.Channel(), connect: cfg.Connect, silence: cfg.Silence,
		onError: cfg.OnError}
	if field, reason := c.complete(); field != "" {
		return nil, bad(field, reason)
	}
	// It is also called after connecting, because earlier notifications were missed.
	c.notified = func(string) { cfg.Outbox.Wake() }
	return &Listener{c}, nil
}

// Run listens until ctx ends; then it returns nil. When the connection is lost it connects again,
// after a growing pause, and wakes the relays, because it may have missed notifications. It runs
// once at a time, and may run again when it has returned.
func (l *Listener) Run(ctx context.Context) error {
	if l == nil || l.channel == nil {
		return &outbox.InputError{Field: "Listener", Reason: "is nil or was not made by New"}
	}
	return l.channel.run(ctx)
}
