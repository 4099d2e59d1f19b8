package owned_test

import (
	"cmp"
	"slices"
	"time"
)

// batch is the messages that one process had in flight in one partition, under one epoch. For
// claims that lapsed at a store, it is the messages that were claimed at once.
type batch struct {
	child int
	span
	claimed int64
	why     string
}

// second: each further effect of a key has a reason, and no loss is the reason of more effects than
// messages were in flight.
func (v *checkResult) second(h *history) {
	blamed := map[batch]map[uint64]bool{}
	h.runsOf(func(key uint64, runs []run) {
		for j := 1; j < len(runs); j++ {
			reason := ""
			for i := range j {
				why := h.reason(&runs[i], &runs[j])
				switch why {
				case "":
					v.problem(&v.doubled, "key %x ran twice without a reason: %s",
						key, tale{h, key})
				case expired:
				default:
					b := h.inFlight(&runs[i], why)
					if blamed[b] == nil {
						blamed[b] = map[uint64]bool{}
					}
					blamed[b][key] = true
				}
				reason = why
			}
			if reason != "" {
				v.explained[reason]++
			}
		}
	})
	for b, keys := range blamed {
		if len(keys) > h.batch {
			v.problem(&v.doubled,
				"%d keys ran twice because process %d was %s in %v: at most %d were in flight",
				len(keys), b.child, b.why, b.partition, h.batch)
		}
	}
}

func (h *history) inFlight(a *run, why string) batch {
	b := batch{child: a.child, span: span{a.partition, a.epoch}, why: why}
	if why == lapsed && !h.guarded(a) {
		b.claimed = a.claimed
	}
	return b
}

// The reasons of a second effect.
const (
	expired = "expired" // the window of the first was over
	died    = "killed"  // its process died before the mark was answered
	// another process got the partition, which was not released, before the mark was answered
	superseded = "superseded"
	stopped    = "stopped" // its process was stopped until its claim or lease had lapsed
	lapsed     = "lapsed"  // its claim or lease lapsed without a stop
)

// reason returns why b ran although a had run, or "". Both are runs of one key; a was claimed
// first.
func (h *history) reason(a, b *run) string {
	// The mark was sent after the effect had ended, and written after that. The claim of b was sent
	// before b began.
	if since := cmp.Or(a.sent, a.ended, a.begun); b.begun+grain > since+
		int64(h.window[a.partition.source]) {
		return expired
	}
	if a.acked > 0 && b.claimed > a.acked {
		return "" // every later claim finds a mark that was answered
	}
	if at, dead := h.deaths[a.child]; dead && a.acked == 0 && a.over() >= at && b.begun >= at {
		return died
	}
	if h.superseded(a, b) {
		return superseded
	}
	if at := h.lapse(a); at < a.over() && b.begun+grain > at {
		moved := a.partition != b.partition || !h.guarded(a)
		if (moved || h.succeeded(a, b)) && h.stopped(a, b, at) {
			return stopped
		}
		if moved {
			return lapsed
		}
	}
	return ""
}

// grain is the precision of the times: Redis counts in ms.
const grain = 2 * int64(time.Millisecond)

// never is a time that does not come.
const never = int64(1 << 62)

// inOrder returns the time from which the inner store has a's claim because its process released
// the partition.
func (h *history) inOrder(a *run) (since int64, ok bool) {
	_, last, _ := h.tenure(a.partition, a.child, a.epoch)
	since, ok = h.orderly[span{a.partition, last}]
	return since, ok
}

// guarded reports whether a's key is protected until its partition is lost: no other store has the
// claim.
func (h *history) guarded(a *run) bool {
	_, ordered := h.inOrder(a)
	return a.proven && !ordered
}

// lapse returns when the protection of a's key ended, if no process died and no other process was
// given the partition.
func (h *history) lapse(a *run) int64 {
	claim := max(a.claimed, a.renewed) + int64(h.claim)
	since, ordered := h.inOrder(a)
	switch {
	case !a.proven:
		return claim
	case ordered:
		return max(claim, since)
	}
	if heard := h.heard[span{a.partition, a.epoch}]; heard > 0 {
		return heard + int64(h.lease)
	}
	return never
}

// tenure returns the first and the last of the consecutive epochs that a process had in a
// partition, and the next grant to another process. A process has several epochs when it acquires a
// lapsed partition again.
func (h *history) tenure(where partition, child int, epoch uint64) (first, last uint64,
	next *grant) {
	all := h.grants[where]
	i := slices.IndexFunc(all, func(g grant) bool { return g.child == child && g.epoch == epoch })
	if i < 0 { // the grant is not on record
		i = slices.IndexFunc(all, func(g grant) bool { return g.child != child && g.epoch > epoch })
		if i < 0 {
			return epoch, epoch, nil
		}
		return epoch, epoch, &all[i]
	}
	first, last = epoch, epoch
	for n := i; n > 0 && h.continued(where, n-1); n-- {
		first = all[n-1].epoch
	}
	for ; h.continued(where, i); i++ {
		last = all[i+1].epoch
	}
	if i+1 < len(all) {
		next = &all[i+1]
	}
	return first, last, next
}

// continued reports whether a process that was given a partition was given it again, without having
// released it and with no other owner in between.
func (h *history) continued(where partition, i int) bool {
	all := h.grants[where]
	_, ordered := h.orderly[span{where, all[i].epoch}]
	return !ordered && i+1 < len(all) && all[i+1].child == all[i].child
}

// superseded: a's partition, which was not released, was given to another process before a was
// over, and b came after that. A claim that a store has keeps others out until it lapses.
func (h *history) superseded(a, b *run) bool {
	_, last, g := h.tenure(a.partition, a.child, a.epoch)
	_, ordered := h.orderly[span{a.partition, last}]
	if g == nil || ordered || g.child == a.child || g.sent >= a.over() {
		return false
	}
	if !a.proven && b.begun+grain <= h.lapse(a) {
		return false
	}
	if a.partition == b.partition {
		return b.epoch >= g.epoch
	}
	return b.begun >= g.sent
}

// succeeded: a's partition, which was not released, was given to another process, and b ran under
// that grant or a later one. The process of a had noticed the loss before.
func (h *history) succeeded(a, b *run) bool {
	_, last, g := h.tenure(a.partition, a.child, a.epoch)
	_, ordered := h.orderly[span{a.partition, last}]
	return g != nil && !ordered && g.child != a.child && b.epoch >= g.epoch
}

// stopped: a's process was stopped when the protection of a's key lapsed, and for longer than a
// healthy process goes without a renewal. A process renews its leases every third of a lease.
func (h *history) stopped(a, b *run, lapse int64) bool {
	return slices.ContainsFunc(h.pauses, func(p pause) bool {
		return p.child == a.child && p.from < lapse && lapse < p.to && p.from < b.begun &&
			p.to-p.from > int64(h.lease*2/3)
	})
}
