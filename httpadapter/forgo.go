package httpadapter

import (
	"context"
	"sync/atomic"
)

// handlerRun is what a handler can say of its run.
type handlerRun struct{ forgo atomic.Bool }

type runKey struct{}

// Forgo says, from a handler, that nothing has begun, so that its answer is sent and not
// kept whatever its status: its retry runs. It withdraws [dedup.MarkIrreversible] as
// [dedup.NotStarted] does. With a 2xx it is ignored. It reports false where ctx is not that
// of a handler behind a [Middleware].
func Forgo(ctx context.Context) bool {
	run, ok := ctx.Value(runKey{}).(*handlerRun)
	if ok {
		run.forgo.Store(true)
	}
	return ok
}
