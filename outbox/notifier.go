package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/internal/backoff"
)

// DefaultNotifyEvery is the default of NotifierConfig.Every.
const DefaultNotifyEvery = 5 * time.Millisecond

// NotifierConfig says how relays of other processes are woken. Outbox and DB are required.
type NotifierConfig struct {
	// Outbox whose Notify is passed on. It must be of PostgreSQL. No default.
	Outbox *Outbox
	// DB is the database. The Notifier uses one connection at a time, and gives it back. No
	// default.
	DB *sql.DB
	// Every is the shortest time between two notifications, a millisecond to a minute: all calls of
	// Notify meanwhile become one. Default: [DefaultNotifyEvery].
	Every time.Duration
	// OnError gets the error of a notification that was not sent; relays find its messages by
	// polling. It must return soon. Default: errors are dropped.
	OnError func(err error)
}

// Notifier tells relays of other processes, by NOTIFY, that there are messages. It sends NOTIFY in
// statements of its own: in the transaction of an effect it would make all commits of the server
// that notify wait for each other. Make it with [NewNotifier], one for each process that inserts.
type Notifier struct {
	cfg     NotifierConfig
	running atomic.Bool
	sent    atomic.Int64
}

// NewNotifier checks the configuration; an [*InputError] names the field. It starts nothing and
// does not touch the database.
func NewNotifier(cfg NotifierConfig) (*Notifier, error) {
	if cfg.Every == 0 {
		cfg.Every = DefaultNotifyEvery
	}
	if cfg.OnError == nil {
		cfg.OnError = func(error) {}
	}
	switch err := cfg.Outbox.ready(); {
	case err != nil:
		return nil, err
	case cfg.Outbox.dialect.kind != Postgres:
		return nil, inputError("Outbox",
			"is of "+cfg.Outbox.dialect.kind.String()+"; only PostgreSQL has NOTIFY")
	case cfg.DB == nil:
		return nil, inputError("DB", "is nil")
	case cfg.Every < time.Millisecond || cfg.Every > time.Minute:
		return nil, inputError("Every",
			fmt.Sprintf("is %v, must be %v to %v", cfg.Every, time.Millisecond, time.Minute))
	}
	return &Notifier{cfg: cfg}, nil
}

// Run passes on calls of Outbox.Notify until ctx ends; then it returns nil. It sends the first one
// after a pause at once. After a failure it calls OnError and pauses, longer each time, at most
// [DefaultPollMax] or NotifierConfig.Every if that is longer; no message is lost. It runs once at a
// time, and may run again when it has returned.
func (n *Notifier) Run(ctx context.Context) error {
	if n == nil || n.cfg.Outbox == nil {
		return inputError("Notifier", "is nil or was not made by NewNotifier")
	}
	if !n.running.CompareAndSwap(false, true) {
		return errors.New("outbox: the notifier is running already")
	}
	defer n.running.Store(false)
	bell, remove := n.cfg.Outbox.notifiers.add()
	defer remove()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-bell:
		}
		pause := n.cfg.Every
		if err := n.send(ctx); err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			n.cfg.OnError(err)
			pause = max(pause, backoff.Policy{Base: pause,
				Cap: max(pause, DefaultPollMax)}.Delay(failures, 0, nil))
			failures++
		}
		if backoff.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

func (n *Notifier) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if _, err := n.cfg.DB.ExecContext(ctx, `SELECT pg_notify($1::text, '')`,
		n.cfg.Outbox.channel); err != nil {
		return fmt.Errorf("outbox: notify: %w", err)
	}
	n.sent.Add(1)
	return nil
}

// Sent returns how many notifications were sent since the Notifier was made. It may be called at
// any time.
func (n *Notifier) Sent() int64 { return n.sent.Load() }
