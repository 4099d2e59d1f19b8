package owned

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// slowAcquire holds back Redis' reply to Acquire until Redis has answered "stale" to a batch write.
type slowAcquire struct {
	armed   chan struct{} // its answer is held back once this is closed
	there   chan struct{} // closed when it is
	release chan struct{}
	commands
}

func (s *slowAcquire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		reply, _ := cmd.(*redis.Cmd)
		if reply == nil {
			return err
		}
		if words, _ := reply.Val().([]any); len(words) > 0 && words[0] == "acquired" {
			select {
			case <-s.armed:
				close(s.there)
				<-s.release
			default:
			}
		}
		if words, _ := reply.Val().([]any); len(words) > 0 && words[0] == "stale" {
			close(s.release)
		}
		return err
	}
}

func (s *slowAcquire) ProcessPipelineHook(
	next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestMarksBesideAnAcquire: the lease has run out, and there was no other owner. While the
// partition is acquired again, a mark is sent under the old epoch, and the script refuses it.
// Neither the mark nor the partition may be lost by that: the key would run again.
func TestMarksBesideAnAcquire(t *testing.T) {
	story(t, func(w *world) {
		slow := &slowAcquire{armed: make(chan struct{}), there: make(chan struct{}),
			release: make(chan struct{})}
		w.client.AddHook(slow)
		s := w.process()
		o := w.own(s)
		r := request(1)
		w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
		w.freeze(o, w.opts.Lease+1)
		close(slow.armed)
		acquired := make(chan error)
		go func() { acquired <- o.reacquire(w.Context()) }()
		<-slow.there
		marked := make(chan driver.Answer)
		go func() { marked <- w.finish(s, success(&r)) }()
		assert.NoError(w, <-acquired, "nobody was there")
		a := <-marked
		assert.True(w, a.Held && a.Written, "a mark that was sent meanwhile: %+v", a)
		assert.NoError(w, context.Cause(o.Context()), "the partition was acquired again, and ended")
		w.wants("the key", w.claim(s, request(1)), dedup.Duplicate, 0)
	})
}

// TestALostReplyOfAnAcquire: the lease has run out without another owner, the partition was
// acquired again, and the reply to that was lost. Redis has a new epoch now, and calls under the
// old one are stale. Neither the marks of running keys nor the partition may be lost by that: the
// keys would run again, though nobody has taken them over.
func TestALostReplyOfAnAcquire(t *testing.T) {
	for name, after := range map[string]func(w *world, s *Store, o *Ownership){
		"a mark":    func(*world, *Store, *Ownership) {},
		"a renewal": func(_ *world, s *Store, o *Ownership) { s.renew([]*Ownership{o}) },
		"an ask": func(w *world, s *Store, _ *Ownership) {
			s.Claim(w.Context(), []driver.ClaimRequest{request(3)})
		},
		"a fold": func(w *world, _ *Store, o *Ownership) {
			_, err := o.move(w.Context(), &script.Fold{Gen: o.gen, N: 1},
				nil)
			assert.Error(w, err, "a fold under the epoch before")
		},
		"another one": func(w *world, _ *Store, o *Ownership) {
			w.wired().lose = 1
			assert.ErrorIs(w, o.reacquire(w.Context()), errNoReply, "acquired once more")
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				h := w.wired()
				s := w.process()
				o := w.own(s)
				done := request(3)
				w.wants("a key that is done", w.claim(s, done), dedup.Acquired, 1)
				w.finish(s, success(&done))
				r := request(1)
				w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
				w.freeze(o, w.opts.Lease+1)
				o.renewing.Store(true)
				h.lose = 1
				require.ErrorIs(w, o.reacquire(w.Context()), errNoReply, "acquired again")
				after(w, s, o)
				a := w.finish(s, success(&r))
				assert.True(w, a.Held && a.Written,
					"nobody was there, and the mark was refused: %+v", a)
				err := context.Cause(o.Context())
				assert.NoError(w, err, "nobody was there, and the partition ended")
				w.wants("the key", w.claim(s, request(1)), dedup.Duplicate, 0)
				w.wants("another new key", w.claim(s, request(4)), dedup.Acquired, 1)
				must(w, o.Release(w.Context()))
				w.own(w.process())
			})
		})
	}
}

// TestALostReplyBehindAnotherOwner: the reply to an acquire was lost, and another owner had the
// partition between the lapse and that acquire. The keys that this other owner has begun and marked
// are not known here, so the owner begins anew.
func TestALostReplyBehindAnotherOwner(t *testing.T) {
	story(t, func(w *world) {
		h := w.wired()
		s, other := w.process(), w.process()
		o := w.own(s)
		w.wants("a new key", w.claim(s, request(1)), dedup.Acquired, 1)
		w.freeze(o, w.opts.Lease+1)
		o.renewing.Store(true)
		must(w, w.own(other).Release(w.Context()))
		h.lose = 1
		require.ErrorIs(w, o.reacquire(w.Context()), errNoReply, "acquired again")
		s.renew([]*Ownership{o})
		cause := context.Cause(o.Context())
		assert.ErrorIs(w, cause, ErrLost, "somebody else was there, and Context ended")
		must(w, o.Release(w.Context()))
		w.own(s)
	})
}

// TestLapsedAndBehind: the lease ran out, and a server was promoted meanwhile that has lost
// answered batch writes. There was no other owner, but the filter has marks that the server lost.
// The server may also have lost marks of others. So the owner begins anew, whichever call it sends
// first.
func TestLapsedAndBehind(t *testing.T) {
	var running []driver.ClaimRequest // begun before
	for name, work := range map[string]func(w *world, s *Store, o *Ownership){
		"a claim":    func(w *world, s *Store, _ *Ownership) { w.claim(s, request(2)) },
		"a renewal":  func(_ *world, s *Store, o *Ownership) { s.renew([]*Ownership{o}) },
		"an acquire": func(w *world, _ *Store, o *Ownership) { _ = o.reacquire(w.Context()) },
		"marks first": func(w *world, s *Store, _ *Ownership) {
			for i := range running { // each is a write, by which the server counts up again
				_ = s.Finish(w.Context(), []driver.Finish{success(&running[i])})
			}
			w.claim(s, request(2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				s := w.process()
				o := w.own(s)
				for n := range 5 {
					r := request(10 + n)
					w.claim(s, r)
					w.finish(s, success(&r))
				}
				running = nil
				for n := range 9 {
					running = append(running, request(100+n))
					w.wants("a new key", w.claim(s, running[n]), dedup.Acquired, 1)
				}
				w.freeze(o, w.opts.Lease+1)
				must(w, w.client.HIncrBy(w.Context(), o.names.head, "seq", -3).Err())
				work(w, s, o)
				cause := context.Cause(o.Context())
				assert.ErrorIs(w, cause, ErrLost, "three turns are lost, and Context ended")
				must(w, o.Release(w.Context()))
				w.own(s)
			})
		})
	}
}
