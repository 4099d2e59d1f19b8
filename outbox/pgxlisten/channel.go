package pgxlisten

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceward/onceward/internal/backoff"
)

// patience is how long one step on the connection may take.
const patience = 4 * time.Second

// channel listens on a connection of its own.
type channel struct {
	name    string
	connect func(ctx context.Context) (*pgx.Conn, error)
	silence time.Duration
	onError func(err error)
	// notified gets each notification, and an empty one when a connection has begun to listen.
	notified func(payload string)
	running  atomic.Bool
}

// complete sets the defaults, and says which field is wrong, if one is.
func (c *channel) complete() (field, reason string) {
	if c.silence == 0 {
		c.silence = DefaultSilence
	}
	if c.onError == nil {
		c.onError = func(error) {}
	}
	switch {
	case c.connect == nil:
		return "Connect", "is nil"
	case c.silence < time.Millisecond || c.silence > time.Hour:
		return "Silence",
			fmt.Sprintf("is %v, must be %v to %v", c.silence, time.Millisecond, time.Hour)
	}
	return "", ""
}

// again is the backoff between connections, which spreads the processes that have lost the same
// server.
var again = backoff.Policy{Base: 50 * time.Millisecond, Cap: 5 * time.Second}

// run listens until ctx ends.
func (c *channel) run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("pgxlisten: the listener is running already")
	}
	defer c.running.Store(false)
	for failures := 0; ; failures++ {
		began := time.Now()
		err := c.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.onError(fmt.Errorf("pgxlisten: %w", err))
		if time.Since(began) > again.Cap { // it has listened meanwhile
			failures = 0
		}
		if backoff.Sleep(ctx, again.Delay(failures, 0, nil)) != nil {
			return nil
		}
	}
}

// session listens on one connection, until it is lost.
func (c *channel) session(ctx context.Context) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close(ctx, conn)
	payload := ""
	for {
		c.notified(payload)
		if payload, err = c.wait(ctx, conn); err != nil {
			return err
		}
	}
}

func (c *channel) dial(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if conn == nil {
		return nil, errors.New("connect: Connect has returned no connection")
	}
	if _, err := conn.Exec(ctx,
		"LISTEN "+pgx.Identifier{c.name}.Sanitize()); err != nil {
		c.close(ctx, conn)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

// wait returns when there is a notification. It pings a silent connection, and continues to wait as
// long as the connection answers.
func (c *channel) wait(ctx context.Context, conn *pgx.Conn) (payload string, err error) {
	for {
		payload, err = c.next(ctx, conn)
		if err == nil || ctx.Err() != nil {
			return payload, err
		}
		if !errors.Is(err, context.DeadlineExceeded) || conn.IsClosed() {
			return "", fmt.Errorf("wait: %w", err)
		}
		if err := c.ping(ctx, conn); err != nil {
			return "", fmt.Errorf("ping: %w", err)
		}
	}
}

func (c *channel) next(ctx context.Context, conn *pgx.Conn) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.silence)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return "", err
	}
	return n.Payload, nil
}

func (c *channel) ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return conn.Ping(ctx)
}

// close ends the session on the server, for at most a second.
func (c *channel) close(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
