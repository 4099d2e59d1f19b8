package grpcadapter

import (
	"context"
	"sync/atomic"
)

// handlerRun holds what a handler can report about its run.
type handlerRun struct{ forgo atomic.Bool }

type runKey struct{}

// Forgo reports, for the handler that calls it, that nothing of its effect has begun. The handler's
// error is then sent but not kept, whatever its code, and a retry runs again. Forgo withdraws
// [dedup.MarkIrreversible] as [dedup.NotStarted] does. If the handler returns a response, Forgo is
// ignored. It reports false if ctx is not that of a handler behind a [UnaryServerInterceptor].
func Forgo(ctx context.Context) bool {
	run, ok := ctx.Value(runKey{}).(*handlerRun)
	if ok {
		run.forgo.Store(true)
	}
	return ok
}
