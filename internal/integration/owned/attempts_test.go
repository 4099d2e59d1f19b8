package owned_test

import (
	"cmp"
	"maps"
	"slices"

	"github.com/onceward/onceward/dedup"
)

// attempts: a key that kills its process gets all of its attempts, and is then put on the dead
// list. Another key is put there only if as many other events can have used up its attempts: see
// interrupted.
func (v *checkResult) attempts(h *history) {
	dead := map[uint64]deadMessage{}
	for _, l := range h.deadMessages {
		if known, twice := dead[l.key]; !twice || l.at < known.at {
			dead[l.key] = l
		}
	}
	runs := map[uint64][]run{}
	h.runsOf(func(key uint64, of []run) {
		if _, is := dead[key]; is || h.poison[key] {
			runs[key] = of
		}
	})
	for _, key := range slices.Sorted(maps.Keys(dead)) {
		l := dead[key]
		if !h.poison[key] && h.interrupted(runs[key], &l) < int(h.cap) {
			v.problem(&v.other, "key %x is on the dead list at attempt %d, and never killed anybody: %s", key, l.attempt, tale{h, key})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(h.poison)) {
		l, ok := dead[key]
		own := runs[key]
		switch {
		case !ok:
			v.problem(&v.other, "key %x kills, and is not on the dead list: %s", key, tale{h, key})
		case len(own) > int(h.cap):
			v.problem(&v.other, "key %x killed %d times: %d attempts are allowed: %s", key,
				len(own), h.cap, tale{h, key})
		case h.interrupted(own, &l) < int(h.cap):
			v.problem(&v.other, "key %x was given up after %d attempts: %d are allowed: %s",
				key, len(own), h.cap, tale{h, key})
		case len(own) == int(h.cap):
			v.capped++
		}
	}
}

// interrupted counts the events that can have used up an attempt of a key, between its first
// sending to a partition and the time at which it was given up. They are: a process that had the
// partition, and died or lost it to another one; an effect whose process died, or whose claim
// lapsed; a claim whose answer was lost; a failure.
func (h *history) interrupted(runs []run, l *deadMessage) (n int) {
	spent := map[span]bool{}
	for where, since := range h.lay(l.key, runs) {
		for _, g := range h.grants[where] {
			first, _, _ := h.tenure(where, g.child, g.epoch)
			if at, broken := h.broken(where, &g); broken && at > since && at < l.at {
				spent[span{where, first}] = true
			}
		}
	}
	for i := range runs {
		r := &runs[i]
		at, dead := h.deaths[r.child]
		dead = dead && r.over() >= at && at < l.at
		if lapse := h.lapse(r); dead || lapse < r.over() && lapse < l.at {
			first, _, _ := h.tenure(r.partition, r.child, r.epoch)
			spent[span{r.partition, first}] = true
		}
	}
	for _, a := range h.answers { // it may have used up an attempt
		if a.key == l.key && a.outcome == uint64(dedup.Unknown) && a.at < l.at {
			n++
		}
	}
	for _, at := range h.failed[l.key] {
		if at < l.at {
			n++
		}
	}
	return n + len(spent)
}

// broken returns when a process lost a partition that it had been given and had not released.
func (h *history) broken(where partition, g *grant) (at int64, ok bool) {
	_, last, next := h.tenure(where, g.child, g.epoch)
	if _, ordered := h.orderly[span{where, last}]; ordered {
		return 0, false
	}
	at = never
	if next != nil {
		at = next.sent
	}
	if died, dead := h.deaths[g.child]; dead && died >= g.sent {
		at = min(at, died)
	}
	return at, at < never
}

// lay returns the partitions in which a key lay to be consumed, and since when. A key that never
// ran has also used up attempts, in batches whose process died before it was run.
func (h *history) lay(key uint64, runs []run) map[partition]int64 {
	partitions := map[partition]int64{}
	add := func(where partition, at int64) {
		partitions[where] = min(cmp.Or(partitions[where], at), at)
	}
	for i := range h.sendings {
		if s := &h.sendings[i]; s.key == key {
			add(s.partition, s.at)
		}
	}
	for i := range runs {
		add(runs[i].partition, runs[i].claimed)
	}
	for i := range h.answers {
		if a := &h.answers[i]; a.key == key {
			add(a.partition, a.sent)
		}
	}
	return partitions
}
