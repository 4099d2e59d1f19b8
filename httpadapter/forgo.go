package httpadapter

import (
	"context"
	"sync/atomic"
)

// handlerRun is what a handler can say about its run.
type handlerRun struct{ forgo atomic.Bool }

type runKey struct{}

// Forgo is called by a handler, and says that nothing has begun. The answer is then sent but not
// kept, whatever its status, and a retry runs again. Forgo withdraws [dedup.MarkIrreversible] as
// [dedup.NotStarted] does. If the answer is a 2xx, Forgo is ignored. It reports false if ctx is not
// that of a handler behind a [Middleware].
func Forgo(ctx context.Context) bool {
	run, ok := ctx.Value(runKey{}).(*handlerRun)
	if ok {
		run.forgo.Store(true)
	}
	return ok
}
