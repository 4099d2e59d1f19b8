package pgxlisten

import (
	"context"
	"database/sql"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceward/onceward/dedup/driver"
)

// WakerConfig says how processes tell each other that keys have ended. DB and Connect are required.
type WakerConfig struct {
	// DB sends the notifications: a pool that others may use too. One statement for up to 256 keys
	// that have ended. No default.
	DB *sql.DB
	// Channel of all processes that share a store: 1-63 bytes. Default: "onceward_wake".
	Channel string
	// Connect, Silence and OnError are those of [Config].
	Connect func(ctx context.Context) (*pgx.Conn, error)
	Silence time.Duration
	OnError func(err error)
}

// Waker is a [driver.Waker] over LISTEN and NOTIFY of PostgreSQL
// (https://www.postgresql.org/docs/current/sql-notify.html), for sqlstore.Options.Waker. Make it
// with [NewWaker], and call Run in every process whose Dedupers have a Config.Wait. While Run has
// no connection it wakes nobody, and waiters poll.
type Waker struct {
	db      *sql.DB
	channel *channel

	mu        sync.Mutex
	listeners map[driver.ID]map[*listener]struct{}
}

type listener struct{ woken func() }

// NewWaker checks the configuration; a [*driver.InputError] names the field. It does not connect.
func NewWaker(cfg WakerConfig) (*Waker, error) {
	bad := func(field, reason string) error {
		return &driver.InputError{Field: field, Reason: reason}
	}
	if cfg.Channel == "" {
		cfg.Channel = "onceward_wake"
	}
	if cfg.DB == nil {
		return nil, bad("DB", "is nil")
	}
	if len(cfg.Channel) > 63 { // NAMEDATALEN, less one
		return nil, bad("Channel", "is longer than 63 bytes")
	}
	w := &Waker{db: cfg.DB, listeners: make(map[driver.ID]map[*listener]struct{})}
	w.channel = &channel{name: cfg.Channel, connect: cfg.Connect, silence: cfg.Silence,
		onError: cfg.OnError, notified: w.notified}
	if field, reason := w.channel.complete(); field != "" {
		return nil, bad(field, reason)
	}
	return w, nil
}

// Run listens until ctx ends; then it returns nil. When the connection is lost it connects again,
// after a growing pause, and then wakes all waiters. It runs once at a time.
func (w *Waker) Run(ctx context.Context) error {
	if err := w.check(); err != nil {
		return err
	}
	return w.channel.run(ctx)
}

func (w *Waker) check() error {
	if w == nil || w.channel == nil {
		return &driver.InputError{Field: "Waker", Reason: "is nil or was not made by NewWaker"}
	}
	return nil
}

// Wake implements [driver.Waker].
func (w *Waker) Wake(ctx context.Context, ids []driver.ID) error {
	if err := w.check(); err != nil {
		return err
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = hex.EncodeToString(id[:])
	}
	// One text, because drivers differ in how they take arrays.
	_, err := w.db.ExecContext(ctx,
		"SELECT pg_notify($1, id) FROM unnest(string_to_array($2, ',')) AS id", w.channel.name,
		strings.Join(names, ","))
	return err
}

// Listen implements [driver.Waker]. It does not use the database.
func (w *Waker) Listen(_ context.Context, id driver.ID, woken func()) (stop func(), err error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	l := &listener{woken}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners[id] == nil {
		w.listeners[id] = make(map[*listener]struct{})
	}
	w.listeners[id][l] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.listeners[id], l)
		if len(w.listeners[id]) == 0 {
			delete(w.listeners, id)
		}
	}, nil
}

// notified wakes the listeners of a key, or all of them when a connection has begun to listen: they
// may have missed earlier notifications.
func (w *Waker) notified(payload string) {
	var id driver.ID
	n, err := hex.Decode(id[:], []byte(payload[:min(len(payload), hex.EncodedLen(len(id)))]))
	var all []*listener
	w.mu.Lock()
	switch {
	case payload == "":
		for _, of := range w.listeners {
			all = slices.AppendSeq(all, maps.Keys(of))
		}
	case err == nil && n == len(id):
		all = slices.AppendSeq(all, maps.Keys(w.listeners[id]))
	}
	w.mu.Unlock()
	for _, l := range all {
		l.woken()
	}
}
