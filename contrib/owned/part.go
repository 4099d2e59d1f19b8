package owned

import (
	"encoding/binary"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup/driver"
)

// part is the share of one call that concerns one partition.
type part struct {
	o        *Ownership
	items    []int32     // indexes of its items, in their order
	n        int         // number of its items
	settled  []batchSlot // of the marked keys
	write    batchWrite
	ask      ask
	asked    []*item // in the order of ask.items
	begin    *begin
	sending  []*begin // the begins in the batch write
	news     int
	room     int           // reserved for begins
	lease    time.Duration // the longest lease of the keys that begin
	shared   bool
	gated    bool // the partition is not released before the begins are answered
	touching bool
}

// partOf returns this call's part for the partition of an origin.
func (c *claiming) partOf(origin *driver.Origin) (*part, error) {
	o, err := c.s.owner(origin)
	if err != nil {
		return nil, err
	}
	p := c.part(o)
	if !p.gate() {
		return nil, errRemoteOwner
	}
	return p, nil
}

func (c *claiming) part(o *Ownership) *part {
	if p := c.known(o); p != nil {
		return p
	}
	p := &part{o: o, shared: o.isShared()}
	p.write.o, p.ask.o = o, o
	c.parts = append(c.parts, p)
	if c.of == nil && len(c.parts) > fewParts {
		c.of = make(map[*Ownership]*part)
		for _, p := range c.parts {
			c.of[p.o] = p
		}
	}
	if c.of != nil {
		c.of[o] = p
	}
	return p
}

// fewParts is up to how many parts are searched one by one. For more parts, there is a map.
const fewParts = 8

func (c *claiming) known(o *Ownership) *part {
	if c.of != nil {
		return c.of[o]
	}
	for _, p := range c.parts {
		if p.o == o {
			return p
		}
	}
	return nil
}

// gate keeps the partition from being released before its begins are answered. It reports false if
// the partition was released or lost meanwhile, or is being released, and never waits. If it
// waited, two batches could wait forever: each would hold one gate and wait for the gate that the
// other one holds, behind a release that waits for it, too.
func (p *part) gate() bool {
	if p.gated {
		return true
	}
	if !p.o.gate.TryRLock() {
		return false
	}
	if p.o.released.Load() || p.o.lostFor() != nil {
		p.o.gate.RUnlock()
		return false
	}
	p.gated = true
	return true
}

// ungate lets releases continue.
func (c *claiming) ungate() {
	for _, p := range c.parts {
		p.o.sent(p.sending)
		p.sending = nil
		if p.gated {
			p.gated = false
			p.o.gate.RUnlock()
		}
	}
}

// giveUp removes a key from a batch that is not sent yet.
func (p *part) giveUp(place int32) {
	p.news--
	p.o.inFlight.Add(-1)
	p.o.mu.Lock()
	defer p.o.mu.Unlock()
	p.o.settle(batchSlot{of: p.begin, place: int(place)})
}

// resend puts an unanswered begin into the batch write again, under the same name.
func (p *part) resend(b *begin, lease time.Duration) {
	p.lease = max(p.lease, lease)
	for _, known := range p.write.begins {
		if known == b {
			return
		}
	}
	p.write.begins = append(p.write.begins, b)
	p.sending = append(p.sending, b)
	p.o.resending(b)
}

// prepare makes the begin for a partition's new keys, and feeds the keys to the filter.
func (p *part) prepare(c *claiming) {
	if p.news == 0 {
		return
	}
	o := p.o
	blob := make([]byte, 0, 8*p.news)
	o.mu.Lock()
	gen := o.gen
	o.mu.Unlock()
	for _, i := range p.items {
		it := &c.items[i]
		if it.way != proven {
			continue
		}
		o.add(gen, it.member, it.e)
		blob = binary.BigEndian.AppendUint64(blob, uint64(it.member)) // 64 bits either way
	}
	p.begin.blob = string(blob)
	p.begin.ready.Store(true)
	p.write.begins = append(p.write.begins, p.begin)
}

// granted returns nil if the begins of one partition are on record in time, and otherwise the
// reason.
func (p *part) granted() (refused error) {
	t, o := &p.write, p.o
	switch {
	case len(t.begins) == 0:
		return nil
	case t.reply.Err != nil:
		return t.reply.Err
	case t.reply.Answer == script.AnswerFull:
		return driver.ErrStoreFull
	case t.reply.Answer == script.AnswerShared:
		p.shared = true
		return errShared
	case !t.began():
		return errRemoteOwner
	}
	if p.lease > o.left() {
		return errLate
	}
	for _, b := range t.begins {
		b.fence.CompareAndSwap(0, t.reply.Fence)
	}
	return nil
}
