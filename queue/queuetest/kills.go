package queuetest

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/queue"
)

// kills is how many processes die in a row, one after the other.
const kills = 12

// killing starts one process after the other, each of which dies at its nth message. The last
// process handles what they leave.
func (tr *trial) killing(dies func(n int32) script) {
	tr.send(1, messages("killed", tr.q.IDs)...)
	for i := range int32(kills) {
		p := tr.start(dies(1 + 23*i%60*int32(tr.q.IDs)/many))
		tr.await("a process is killed", func() bool { return !p.alive() })
	}
	tr.start(script{workers: 8})
	tr.through()
}

func checkKilledBefore(tr *trial) {
	tr.killing(func(n int32) script {
		var runs atomic.Int32
		return script{workers: 8,
			handle: func(_ context.Context, p *process, _ *queue.Delivery, effect func()) error {
				if runs.Add(1) == n {
					p.kill()
					return errKilled
				}
				effect()
				return nil
			}}
	})
}

func checkKilledIn(tr *trial) {
	tr.killing(func(n int32) script {
		var runs atomic.Int32
		return script{workers: 8,
			handle: func(_ context.Context, p *process, _ *queue.Delivery, effect func()) error {
				if effect(); runs.Add(1) == n {
					p.kill()
					return errKilled
				}
				return nil
			}}
	})
}

func checkKilledAfter(tr *trial) {
	tr.killing(func(n int32) script {
		var acks atomic.Int32
		return script{workers: 8, wrap: func(p *process, d *queue.Delivery) {
			ack := d.Ack
			d.Ack = func(ctx context.Context) error {
				if acks.Add(1) == n {
					p.kill()
					return errKilled
				}
				return ack(ctx)
			}
		}}
	})
}

// checkAckLost loses about one in twenty of the first acknowledgements, or the answer to it.
func checkAckLost(tr *trial) {
	tr.send(1, messages("lost", tr.q.IDs)...)
	var acks counts
	tr.start(script{workers: 8, wrap: func(_ *process, d *queue.Delivery) {
		ack := d.Ack
		d.Ack = func(ctx context.Context) error {
			switch n := acks.add(d.ID); {
			case n > 1 || hash(d.ID)%20 > 0:
				return ack(ctx)
			case strings.HasSuffix(d.ID, "1"): // its answer is lost
				_ = ack(ctx)
				return errPlanned
			}
			return nil
		}
	}})
	tr.through()
}

// checkNackLost makes about one message in twenty fail once, and loses its first Nack.
func checkNackLost(tr *trial) {
	all := messages("lost", tr.q.IDs)
	fails, failing := func(id string) bool { return hash(id)%20 == 0 }, 0
	for _, m := range all {
		if fails(m.ID) {
			failing++
		}
	}
	tr.send(1, all...)
	var runs, nacks counts
	p := tr.start(script{workers: 8,
		handle: func(_ context.Context, _ *process, d *queue.Delivery, effect func()) error {
			if runs.add(d.ID) == 1 && fails(d.ID) {
				return errPlanned
			}
			effect()
			return nil
		},
		wrap: func(_ *process, d *queue.Delivery) {
			nack := d.Nack
			d.Nack = func(ctx context.Context, after time.Duration) error {
				if nacks.add(d.ID) > 1 {
					return nack(ctx, after)
				}
				return nil
			}
		}})
	if tr.q.AckWait == 0 { // they are redelivered when the connection ends
		tr.await("each message that was to fail has failed", func() bool {
			nacks.mu.Lock()
			defer nacks.mu.Unlock()
			return len(nacks.of) >= failing
		})
		p.kill()
		tr.start(script{workers: 8})
	}
	tr.through()
}

// checkStorm sends 1,500 messages of 1,000 ids. Each fifth run fails, and each tenth
// acknowledgement is lost.
func checkStorm(tr *trial) {
	all := messages("storm", tr.q.IDs)
	var runs, acks atomic.Int32
	s := script{workers: 16,
		handle: func(_ context.Context, _ *process, _ *queue.Delivery, effect func()) error {
			if runs.Add(1)%5 == 0 {
				return errPlanned
			}
			effect()
			return nil
		},
		wrap: func(_ *process, d *queue.Delivery) {
			ack := d.Ack
			d.Ack = func(ctx context.Context) error {
				if acks.Add(1)%10 == 0 {
					return nil
				}
				return ack(ctx)
			}
		}}
	for range 3 {
		tr.start(s)
	}
	tr.send(1, all...)
	tr.send(1, all[:tr.q.IDs/2]...)
	tr.through()
}
