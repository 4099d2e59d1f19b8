package main

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Trip is what a workflow books: a seat, its payment, a ticket.
type Trip struct {
	Flight string
	Amount int64
}

// BookTrip reserves a seat, charges for it and has the ticket issued. When a step fails, it undoes
// the steps that it has begun. The engine runs each activity at least once: when a worker dies, or
// its answer is lost, the same activity runs again on another worker.
func BookTrip(ctx workflow.Context, trip Trip) (ticket string, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		// an attempt that takes longer may still run while the next one runs
		StartToCloseTimeout: time.Minute,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second,
			MaximumAttempts: 8},
	})
	patient := workflow.WithRetryPolicy(ctx,
		temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: time.Minute})

	var s *Steps // gives the activities' names; none of its methods is called
	var undo []any
	defer func() {
		if err == nil {
			return
		}
		// compensations run even if the workflow was canceled
		ctx, cancel := workflow.NewDisconnectedContext(patient)
		defer cancel()
		for _, step := range slices.Backward(undo) {
			err = errors.Join(err, workflow.ExecuteActivity(ctx, step, trip).Get(ctx, nil))
		}
	}()

	// A compensation is noted before its step runs, because when the workflow gives up on a step,
	// it does not know whether the step has happened.
	undo = append(undo, s.Release)
	if err := workflow.ExecuteActivity(ctx, s.Reserve, trip).Get(ctx, nil); err != nil {
		return "", err
	}
	undo = append(undo, s.Refund)
	if err := workflow.ExecuteActivity(ctx, s.Charge, trip).Get(ctx, nil); err != nil {
		return "", err
	}
	// Nothing undoes a ticket, so this step is retried until its outcome is known: a ticket or a
	// refusal.
	err = workflow.ExecuteActivity(patient, s.Issue, trip).Get(ctx, &ticket)
	return ticket, err
}
