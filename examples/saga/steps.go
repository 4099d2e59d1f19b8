package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// window is longer than a workflow can run, including a later reset that runs it again.
const window = 30 * 24 * time.Hour

// Steps are the activities. Each of them has its effect once for a workflow, however often the
// engine runs it.
type Steps struct {
	db      *sql.DB
	marks   *sqladapter.Ledger // of effects that are rows of db
	once    *dedup.Deduper     // of effects elsewhere
	bank    *bank
	airline *airline
}

func newSteps(ctx context.Context, db *sql.DB, b *bank, a *airline) (*Steps, error) {
	s := &Steps{db: db, bank: b, airline: a}
	var err error
	s.marks, err = sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite, Namespace: "trips",
		Window: window})
	if err != nil {
		return nil, err
	}
	if err := s.marks.Migrate(ctx, db); err != nil {
		return nil, err
	}
	store, err := sqlstore.New(db, sqlstore.Options{Dialect: sqladapter.SQLite})
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	s.once, err = dedup.New(store, dedup.Config{
		Namespace: "trips",
		Window:    window,
		LeaseTTL:  10 * time.Second, // after it another worker takes over from a dead one
		Resolve:   s.resolve,
	})
	return s, err
}

// key names a step of a workflow. It contains neither the attempt nor the run, because a reset
// makes a new run. A workflow that takes a step twice on purpose numbers the steps.
func key(ctx context.Context, step string) string {
	return activity.GetInfo(ctx).WorkflowExecution.ID + "/" + step
}

// activityError tells the engine which errors need no retry.
func activityError(err error) error {
	if err != nil && dedup.CanAck(err) {
		return temporal.NewNonRetryableApplicationError(err.Error(), "refused", err)
	}
	return err // also "in flight elsewhere" and an unknown outcome: the engine asks again
}

// errUndone is the error of a step whose trip was undone. Such a step has not happened or was
// undone, and will not happen any more.
var errUndone = errors.New("the trip was undone")

// Reserve takes a seat. It is level Atomic: seat and record are one transaction.
func (s *Steps) Reserve(ctx context.Context, trip Trip) error {
	// A workflow that was undone may be started again under its old ID, but gets no seat.
	if _, undone, err := s.marks.Lookup(ctx, s.db, key(ctx, "release")); err != nil || undone {
		return activityError(errors.Join(err, dedup.Permanent(errUndone)))
	}
	_, err := s.marks.Do(ctx, s.db, key(ctx, "reserve"),
		func(ctx context.Context, tx *sql.Tx) error {
			res, err := tx.ExecContext(ctx,
				`UPDATE flight SET free = free - 1 WHERE id = ? AND free > 0`, trip.Flight)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n == 1 {
				return err
			}
			return dedup.Permanent(errors.New("sold out"))
		})
	return activityError(err)
}

// Release gives the seat back, if there is one. If Reserve has no record yet, Release writes it. If
// a Reserve runs later, on a worker that the engine has given up, it finds that record and takes no
// seat.
func (s *Steps) Release(ctx context.Context, trip Trip) error {
	_, err := s.marks.Do(ctx, s.db, key(ctx, "release"),
		func(ctx context.Context, tx *sql.Tx) error {
			reserve, err := s.marks.MarkTx(ctx, tx, key(ctx, "reserve"))
			if err != nil || reserve.First() {
				return err
			}
			_, err = tx.ExecContext(ctx, `UPDATE flight SET free = free + 1 WHERE id = ?`,
				trip.Flight)
			return err
		})
	return activityError(err)
}

// Charge takes the money. It is level Asked: when nobody knows how an attempt has ended, resolve
// asks the bank before anything runs again.
func (s *Steps) Charge(ctx context.Context, trip Trip) error {
	_, err := dedup.Do(ctx, s.once, key(ctx, "charge"), func(ctx context.Context) (string, error) {
		attempt, _ := dedup.FromContext(ctx)
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return "", dedup.NotStarted(err)
		}
		receipt, err := s.bank.charge(ctx, attempt.DownstreamKey("bank"), trip.Amount)
		if errors.Is(err, errDeclined) {
			// no money was taken, and the next try would be declined as well
			return "", dedup.Permanent(err)
		}
		return receipt, err
	})
	return activityError(err)
}

// resolve asks the bank about a charge whose outcome is unknown.
func (s *Steps) resolve(ctx context.Context, _ string, _ dedup.Record) (dedup.Resolution, error) {
	attempt, _ := dedup.FromContext(ctx)
	receipt, found, err := s.bank.find(ctx, attempt.DownstreamKey("bank"))
	switch {
	case err != nil:
		return dedup.Resolution{}, err
	case found:
		return dedup.Happened([]byte(receipt)), nil
	}
	return dedup.DidNotHappen(), nil
}

// Refund gives the money back, if it was taken. It ends the charge first: either the charge is on
// record as done, or Refund records it as failed, and a later Charge finds that record. If a Charge
// is running, Refund returns an error, and the engine tries again.
func (s *Steps) Refund(ctx context.Context, _ Trip) error {
	receipt, err := dedup.Do(ctx, s.once, key(ctx, "charge"),
		func(context.Context) (string, error) { return "", dedup.Permanent(errUndone) })
	switch {
	case err == nil:
	case errors.Is(err, dedup.ErrNoResult):
		// an operator has marked the trip as charged, and no receipt is on record
		return temporal.NewNonRetryableApplicationError(
			"charged without a receipt: refund it by hand", "no receipt", err)
	case dedup.CanAck(err):
		return nil // declined, or never begun: there is nothing to give back
	default:
		return err
	}
	_, err = dedup.Do(ctx, s.once, key(ctx, "refund"), func(ctx context.Context) (struct{}, error) {
		attempt, _ := dedup.FromContext(ctx)
		return struct{}{}, s.bank.refund(ctx, attempt.DownstreamKey("bank"), receipt)
	})
	return activityError(err)
}

// Issue has the ticket issued. It is level Claimed, and the airline has one effect for a key. After
// a crash between that effect and our record, Issue asks the airline again and gets the same
// ticket.
func (s *Steps) Issue(ctx context.Context, trip Trip) (string, error) {
	ticket, err := dedup.Do(ctx, s.once, key(ctx, "issue"),
		func(ctx context.Context) (string, error) {
			attempt, _ := dedup.FromContext(ctx)
			ticket, err := s.airline.issue(ctx, attempt.DownstreamKey("airline"), trip.Flight)
			if errors.Is(err, errRefused) {
				return "", dedup.Permanent(err)
			}
			return ticket, err
		})
	return ticket, activityError(err)
}
