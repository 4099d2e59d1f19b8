package owned

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

// slowLoad holds back the head that a loader has read.
type slowLoad struct {
	armed bool
	there chan struct{}
	goOn  chan struct{}
	commands
}

func (s *slowLoad) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *slowLoad) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if s.armed && len(cmds) == 1 && cmds[0].Name() == "hgetall" {
			s.armed = false
			close(s.there)
			<-s.goOn
		}
		return err
	}
}

// TestAmnesiaUnderWork: an owner that works while it loads adds members. As many as were lost must not make up
// for them: they are in sets of its own.
func TestAmnesiaUnderWork(t *testing.T) {
	story(t, func(w *world) {
		s := w.process()
		o := w.own(s)
		for n := range 3 {
			r := request(n)
			w.claim(s, r)
			w.finish(s, success(&r))
		}
		must(w, o.Release(w.Context()))
		must(w, w.client.Del(w.Context(), o.names.fresh(o.genNow(), 1)).Err())
		slow := &slowLoad{armed: true, there: make(chan struct{}), goOn: make(chan struct{})}
		w.client.AddHook(slow)
		next := w.process()
		is, err := next.Acquire(w.Context(), only)
		must(w, err)
		<-slow.there
		for n := range 5 {
			w.claim(next, request(10+n))
		}
		close(slow.goOn)
		synctest.Wait()
		if cause := context.Cause(is.Context()); !errors.Is(cause, ErrAmnesia) {
			w.Errorf("three marks are gone, and the partition ended with %v", cause)
		}
	})
}
