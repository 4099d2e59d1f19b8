// Package pgxlisten wakes the relays of a process when another process has inserted messages: it
// listens for what an outbox.Notifier sends.
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
// A notification that is missed costs the time until the next poll, and nothing else.
package pgxlisten

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/outbox"
)

// DefaultSilence is that of [Config].
const DefaultSilence = 10 * time.Second

// patience is how long one step on the connection may take.
const patience = 4 * time.Second

// Config says where to listen. Outbox and Connect are required.
type Config struct {
	// Outbox whose relays are woken. No default.
	Outbox *outbox.Outbox
	// Connect returns a connection of its own, which the Listener closes. It must not go through
	// a pooler that gives the server's connection to others after a transaction. No default.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	// Silence is after how long without a notification the connection is tried: one that is lost
	// may say nothing. A millisecond to an hour. Default: [DefaultSilence].
	Silence time.Duration
	// OnError is told of a connection that was lost or could not be had. It must return soon.
	// Default: nobody is told.
	OnError func(err error)
}

// Listener holds one connection while it runs. Make it with [New].
type Listener struct {
	cfg     Config
	running atomic.Bool
}

// New checks the configuration; an [*outbox.InputError] names the field. It does not connect.
func New(cfg Config) (*Listener, error) {
	bad := func(field, reason string) error {
		return &outbox.InputError{Field: field, Reason: reason}
	}
	if cfg.Silence == 0 {
		cfg.Silence = DefaultSilence
	}
	if cfg.OnError == nil {
		cfg.OnError = func(error) {}
	}
	switch {
	case cfg.Outbox.Channel() == "":
		return nil, bad("Outbox", "is nil or was not made by New")
	case cfg.Connect == nil:
		return nil, bad("Connect", "is nil")
	case cfg.Silence < time.Millisecond || cfg.Silence > time.Hour:
		return nil, bad("Silence",
			fmt.Sprintf("is %v, must be %v to %v", cfg.Silence, time.Millisecond, time.Hour))
	}
	return &Listener{cfg: cfg}, nil
}

// again spreads those who have lost the same server.
var again = backoff.Policy{Base: 50 * time.Millisecond, Cap: 5 * time.Second}

// Run listens until ctx ends; then it returns nil. It connects again when the connection is lost,
// after a growing pause, and wakes the relays then for what it may have missed. It runs once at a
// time, and may run again when it has returned.
func (l *Listener) Run(ctx context.Context) error {
	if l == nil || l.cfg.Connect == nil {
		return &outbox.InputError{Field: "Listener", Reason: "is nil or was not made by New"}
	}
	if !l.running.CompareAndSwap(false, true) {
		return errors.New("pgxlisten: the listener is running already")
	}
	defer l.running.Store(false)
	for failures := 0; ; failures++ {
		began := time.Now()
		err := l.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		l.cfg.OnError(fmt.Errorf("pgxlisten: %w", err))
		if time.Since(began) > again.Cap { // it has listened meanwhile
			failures = 0
		}
		if backoff.Sleep(ctx, again.Delay(failures, 0, nil)) != nil {
			return nil
		}
	}
}

// session is one connection, until it is lost.
func (l *Listener) session(ctx context.Context) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer l.close(ctx, conn)
	for {
		// Also the first time: what was sent before has not been heard.
		l.cfg.Outbox.Wake()
		if err := l.wait(ctx, conn); err != nil {
			return err
		}
	}
}

func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := l.cfg.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if conn == nil {
		return nil, errors.New("connect: Connect has returned no connection")
	}
	if _, err := conn.Exec(ctx,
		"LISTEN "+pgx.Identifier{l.cfg.Outbox.Channel()}.Sanitize()); err != nil {
		l.close(ctx, conn)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

// wait returns when there is a notification. A silent connection is tried, for as long as it
// answers.
func (l *Listener) wait(ctx context.Context, conn *pgx.Conn) error {
	for {
		err := l.next(ctx, conn)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !errors.Is(err, context.DeadlineExceeded) || conn.IsClosed() {
			return fmt.Errorf("wait: %w", err)
		}
		if err := l.ping(ctx, conn); err != nil {
			return fmt.Errorf("ping: %w", err)
		}
	}
}

func (l *Listener) next(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Silence)
	defer cancel()
	_, err := conn.WaitForNotification(ctx)
	return err
}

func (l *Listener) ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return conn.Ping(ctx)
}

// close says goodbye, when there is somebody to say it to.
func (l *Listener) close(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
