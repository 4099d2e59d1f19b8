package grpcadapter

import (
	"context"
	"sync/atomic"
)

// handlerRun is what a handler can say of its run.
type handlerRun struct{ forgo atomic.Bool }

type runKey struct{}

// Forgo says, from a handler, that nothing has begun, so that its error is sent and not
// kept whatever its code: its retry runs. It withdraws [dedup.MarkIrreversible] as
// [dedup.NotStarted] does. With a response it is ignored. It reports false where ctx is not that of
// a handler behind a [UnaryServerInterceptor].
func Forgo(ctx context.Context) bool {
	run, ok := ctx.Value(runKey{}).(*handlerRun)
	if ok {
		run.forgo.Store(true)
	}
	return ok
}
