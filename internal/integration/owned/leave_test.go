package owned_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
)

// At most leaving effects run on while their partition is released. leave looks for them in up to
// leaveTries batches.
const leaving, leaveTries = 6, 20

// leave begins some effects that do not end before the partition is released: the next owner has
// their messages delivered again, and must find them in flight, or done.
func (c *consumer) leave(ctx context.Context) error {
	at := c.next
	for range leaveTries {
		keys, err := c.feed.read(c.where, at, c.atOnce)
		if err != nil {
			return err
		}
		var of []message
		for i, key := range keys {
			if m := (message{key, at + int64(i)}); !c.misplaced(m) {
				of = append(of, m)
			}
		}
		at += int64(len(keys))
		if len(of) == 0 {
			pauseFor(ctx, 2*time.Millisecond)
			continue
		}
		begun, err := c.leaveSome(ctx, of)
		if err != nil || begun > 0 {
			return err
		}
		c.adapt()
	}
	return nil
}

// leaveSome claims messages, begins the first and gives the others back.
func (c *consumer) leaveSome(ctx context.Context, of []message) (begun int, err error) {
	claims, claimed, err := c.claim(ctx, of, true)
	if err != nil {
		return 0, err
	}
	for i, claim := range claims {
		m := of[i]
		switch {
		case claim.Outcome == dedup.Unknown:
			c.remember(m, claim, claimed)
		case claim.Outcome != dedup.Acquired || claim.Alias != nil:
		case begun == leaving || claim.Attempt > 1 || c.cfg.Poison[m.key]:
			c.ends = append(c.ends, completion{of: claim, idle: true})
		case time.Since(claimed) > c.lease/2:
			c.ends = append(c.ends, completion{of: claim, idle: true})
			c.late = true
		default:
			run := c.begin(claim, m, claimed)
			c.going.Go(func() { c.goOn(claim, run, m.offset%2 == 0) })
			begun++
		}
	}
	return begun, c.flushNow(ctx)
}

// goOn is an effect that runs on after the release: for less than its lease, or, if kept is set,
// for longer with KeepAlive.
func (c *consumer) goOn(claim *dedup.Claim, run uint64, kept bool) {
	lasts := c.lease / 5
	if kept {
		_, stop := claim.KeepAlive(context.Background())
		defer stop()
		lasts = c.lease * 3 / 2
	}
	pauseFor(context.Background(), lasts)
	c.ledger.write(record{kind: runEnded, seq: run})
	sent := time.Now()
	for {
		errs := c.d.CompleteBatch(context.Background(),
			[]dedup.Completion{{Claim: claim, InTime: true}})
		switch err := errors.Join(errs...); {
		case err == nil:
			c.ledger.write(record{kind: markAcked, seq: run, from: sent.UnixNano()})
			return
		case !dedup.OutcomeUnknown(err) || time.Since(sent) > 5*time.Second:
			c.refusedWith(1, sent.UnixNano(), fmt.Errorf("an effect that ran on: %w", err))
			c.ledger.write(record{kind: markLost, seq: run, from: sent.UnixNano()})
			return
		}
		pauseFor(context.Background(), 5*time.Millisecond)
	}
}
