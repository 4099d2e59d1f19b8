// Package lease gives one process at a time the right to do something, through Redis 7.0
// or newer (or Valkey 7.2 or newer):
//
//	leases, err := lease.New(client, lease.Options{})
//	l, err := leases.Acquire(ctx, "nightly-report", 30*time.Second)
//	if errors.Is(err, lease.ErrHeld) {
//		return nil // somebody else is at it
//	}
//	if err != nil {
//		return err
//	}
//	defer l.Release(context.WithoutCancel(ctx)) // after stop, and also when ctx has ended
//	run, stop := l.KeepAlive(ctx)
//	defer stop()
//	return report(run) // run is canceled when the lease is lost
//
// # Guarantees
//
// A lease is held by one owner at a time on the server's clock. Only the owner renews
// and releases it: a token, random per lease, is compared in the server. An acquisition
// whose reply was lost is recognized when it is sent again, and never reported as held
// by somebody else. For the holder itself the lease ends early: it counts on the holder's monotonic
// clock from before the request was sent, less 1 % and 2 ms.
//
// # Limits
//
// A lease is not mutual exclusion. A process that is paused past its lease does not know
// that it was, and continues. So does a process whose Redis forgot the lease in a failover.
// Where two holders at a time would do harm, hand [Lease.Fence] to the system that they
// write to, and let it refuse a smaller number than it has seen.
package lease
