package others_test

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
)

const (
	ours      = "github.com/onceward/onceward"
	namespace = "others"
)

// claimed is level Claimed, as README's first screen has it.
func claimed(ctx context.Context, w *worker) (handle, func() error, error) {
	client := redis.NewClient(&redis.Options{Addr: w.cfg.Redis, ContextTimeoutEnabled: true})
	store, err := redisadapter.New(ctx, client,
		redisadapter.Options{Prefix: w.cfg.Prefix, OnFinding: func(preflight.Finding) {}})
	if err != nil {
		return nil, nil, err
	}
	d, err := dedup.New(store,
		dedup.Config{Namespace: namespace, Window: window, LeaseTTL: lease,
			StoreTimeout: lease / 3})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, m uint32) error {
			_, err := dedup.Do(ctx, d, w.key(m), func(context.Context) (struct{}, error) {
				return struct{}{}, w.effect(m, nothing)
			})
			if errors.Is(err, dedup.ErrInFlight) {
				return errBusy
			}
			return err
		}, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return errors.Join(d.Close(ctx), client.Close())
		}, nil
}

// marksOf are those of level Atomic.
func marksOf(prefix string) (*sqladapter.Ledger, error) {
	return sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres, Namespace: namespace,
		Table: prefix, Window: window})
}

// inTransaction is level Atomic: the effect is a row.
func inTransaction(_ context.Context, w *worker) (handle, func() error, error) {
	db, err := w.postgres('Q')
	if err != nil {
		return nil, nil, err
	}
	marks, err := marksOf(w.cfg.Prefix)
	if err != nil {
		return nil, nil, err
	}
	insert := `INSERT INTO ` + w.cfg.Prefix + `_sink (message) VALUES ($1)`
	return func(ctx context.Context, m uint32) error {
		_, err := marks.Do(ctx, db, w.key(m), func(ctx context.Context, tx *sql.Tx) error {
			lost := w.cfg.Fate == replyLost && w.fated(m)
			err := w.effect(m, func() error {
				_, err := tx.ExecContext(ctx, insert, m)
				return err
			})
			if lost {
				w.cut.Store(true) // its claim is decided with COMMIT
			}
			return err
		})
		return err
	}, db.Close, nil
}
