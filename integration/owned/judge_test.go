package owned_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup"
)

// verdict is what a history amounts to.
type verdict struct {
	lost, doubled, stale, other int
	capped                      int            // keys that killed exactly as often as they may
	explained                   map[string]int // second effects, by their reason
	problems                    []string       // the first of each sort
}

// problem notes one; of many of a sort the first few are told.
func (v *verdict) problem(n *int, format string, args ...any) {
	const enough = 8
	*n++
	if *n <= enough {
		v.problems = append(v.problems, fmt.Sprintf(format, args...))
	}
}

// judge reads a history against the sentence of docs/front-design.md, section 4.
func judge(h *history) *verdict {
	v := &verdict{explained: map[string]int{}}
	slices.SortFunc(h.runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.claimed, b.claimed), cmp.Compare(a.begun, b.begun))
	})
	v.keys(h)
	v.second(h)
	v.epochs(h)
	v.attempts(h)
	return v
}

// runsOf calls fn with the runs of each key that has any. The runs are sorted.
func (h *history) runsOf(fn func(key uint64, runs []run)) {
	for i := 0; i < len(h.runs); {
		j := i + 1
		for j < len(h.runs) && h.runs[j].key == h.runs[i].key {
			j++
		}
		fn(h.runs[i].key, h.runs[i:j])
		i = j
	}
}

// keys: each has an effect, or is dead; and was skipped only after that.
func (v *verdict) keys(h *history) {
	first := map[uint64]int64{}
	for i := range h.runs {
		if r := &h.runs[i]; r.ended > 0 {
			first[r.key] = min(cmp.Or(first[r.key], r.ended), r.ended)
		}
	}
	for _, l := range h.letters {
		first[l.key] = min(cmp.Or(first[l.key], l.at), l.at)
	}
	for _, key := range h.sent {
		if first[key] == 0 {
			v.problem(&v.lost, "key %x is lost: no effect of it ended", key)
		}
	}
	for _, s := range h.skips {
		if at := first[s.key]; at == 0 || at > s.at {
			v.problem(&v.lost, "key %x was called a duplicate before any effect of it had ended", s.key)
		}
	}
}

// batch is what one process had in flight in one partition, under one epoch.
type batch struct {
	child int
	place place
	epoch uint64
	why   string
}

// second: each further effect of a key has a reason, and no loss is the reason of more than was in flight.
func (v *verdict) second(h *history) {
	blamed := map[batch]map[uint64]bool{}
	h.runsOf(func(key uint64, runs []run) {
		for j := 1; j < len(runs); j++ {
			reason := ""
			for i := range j {
				why := h.reason(&runs[i], &runs[j])
				switch why {
				case "":
					v.problem(&v.doubled, "key %x ran twice without a reason: %s", key, h.story(key))
				case expired, lapsed:
				default:
					b := batch{runs[i].child, runs[i].place, runs[i].epoch, why}
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
			v.problem(&v.doubled, "%d keys ran twice because process %d was %s in %v: at most %d were in flight", len(keys), b.child, b.why, b.place, h.batch)
		}
	}
}

// The reasons of a second effect.
const (
	expired    = "expired"    // the window of the first was over
	died       = "killed"     // its process died before the mark was answered
	superseded = "superseded" // another process got the partition before the mark was answered
	stopped    = "stopped"    // its process stood still for longer than a lease, and the key went elsewhere
	lapsed     = "lapsed"     // its claim was not renewed in time, and the key went elsewhere
)

// reason says why b ran although a had: both are of one key, and a was claimed first.
func (h *history) reason(a, b *run) string {
	if a.acked > 0 && b.claimed > a.acked {
		// The mark was written after it was sent, and b asked for before it began. Redis counts in ms.
		if b.begun+2*int64(time.Millisecond) > a.sent+int64(h.window[a.place.source]) {
			return expired
		}
		return "" // a mark that was answered is known to everybody who asks afterwards
	}
	if at, dead := h.deaths[a.child]; dead && a.acked == 0 && b.begun >= at {
		return died
	}
	if h.superseded(a, b) {
		return superseded
	}
	if a.place != b.place && h.stopped(a) {
		return stopped
	}
	if a.place != b.place && b.begun > a.claimed+int64(h.claim) && b.begun < a.over() {
		return lapsed
	}
	return ""
}

// superseded: a's partition was given to another process before a was over, and b came after that.
func (h *history) superseded(a, b *run) bool {
	return slices.ContainsFunc(h.grants[a.place], func(g grant) bool {
		if g.child == a.child || g.epoch <= a.epoch || g.sent >= a.over() {
			return false
		}
		if a.place == b.place {
			return b.epoch >= g.epoch
		}
		return b.begun >= g.sent
	})
}

// stopped: a's process stood still while a was not over.
func (h *history) stopped(a *run) bool {
	return slices.ContainsFunc(h.pauses, func(p pause) bool {
		// What a process holds lapses a lease after it was heard last, which is a third of one before.
		return p.child == a.child && p.from < a.over() && p.to > a.claimed && p.to-p.from > int64(h.lease/2)
	})
}

// epochs: nothing is written under an epoch below one that was given before.
func (v *verdict) epochs(h *history) {
	for where, writes := range h.writes {
		slices.SortFunc(writes, func(a, b write) int { return cmp.Compare(a.seq, b.seq) })
		grants, newest := h.grants[where], uint64(0)
		for _, w := range writes {
			for len(grants) > 0 && grants[0].seq <= w.seq {
				newest, grants = max(newest, grants[0].epoch), grants[1:]
			}
			if w.epoch < newest {
				v.problem(&v.stale, "process %d wrote in %v as turn %d under epoch %d, and epoch %d had been given", w.child, where, w.seq, w.epoch, newest)
			}
		}
	}
}

// attempts: a key that kills has as many as it may, and comes to the dead list. Another key does so only if
// it ran, or was about to, in as many processes that died or stood still for other reasons.
func (v *verdict) attempts(h *history) {
	dead := map[uint64]letter{}
	for _, l := range h.letters {
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
		if l := dead[key]; !h.poison[key] && h.interrupted(runs[key], &l) < int(h.cap) {
			v.problem(&v.other, "key %x is on the dead list at attempt %d, and never killed anybody: %s", key, l.attempt, h.story(key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(h.poison)) {
		l, ok := dead[key]
		own := runs[key]
		switch {
		case !ok:
			v.problem(&v.other, "key %x kills, and is not on the dead list: %s", key, h.story(key))
		case len(own) > int(h.cap):
			v.problem(&v.other, "key %x killed %d times: %d attempts are allowed: %s", key, len(own), h.cap, h.story(key))
		case h.interrupted(own, &l) < int(h.cap):
			v.problem(&v.other, "key %x was given up after %d attempts: %d are allowed: %s", key, len(own), h.cap, h.story(key))
		case len(own) == int(h.cap):
			v.capped++
		}
	}
}

// interrupted counts what can have used up an attempt of a key: deaths and pauses of processes that had its
// partition, and claims whose answer was not learnt, up to the time at which it was given up.
func (h *history) interrupted(runs []run, l *letter) (n int) {
	had := map[int]bool{}
	for where := range h.placesOf(runs, l.key) {
		for _, g := range h.grants[where] {
			if g.sent < l.at {
				had[g.child] = true
			}
		}
	}
	for _, r := range runs {
		had[r.child] = true
	}
	for child, at := range h.deaths {
		if had[child] && at < l.at {
			n++
		}
	}
	for _, a := range h.answers { // a claim that is not learnt counts, if it was executed
		if a.key == l.key && a.outcome == uint64(dedup.Unknown) && a.at < l.at {
			n++
		}
	}
	for _, p := range h.pauses {
		if had[p.child] && p.from < l.at && p.to-p.from > int64(h.lease/2) {
			n++
		}
	}
	return n
}

// placesOf is where a key ran, and where it was asked for: one that never ran has used up attempts all the
// same, in batches that were begun and died before its turn.
func (h *history) placesOf(runs []run, key uint64) map[place]bool {
	places := map[place]bool{}
	for _, r := range runs {
		places[r.place] = true
	}
	for _, a := range h.answers {
		if a.key == key {
			places[a.place] = true
		}
	}
	return places
}

// short names what there was too little of.
func (c *counts) short(of *counts) (missing []string) {
	want := func(what string, have, need int) {
		if have < need {
			missing = append(missing, fmt.Sprintf("%d %s of at least %d", have, what, need))
		}
	}
	want("kills", c.kills, of.kills)
	want("handovers", c.handovers, of.handovers)
	want("stops", c.stops, of.stops)
	want("snapshots restored", c.restored, of.restored)
	want("raised counts", c.raised, of.raised)
	want("proven new", int(c.proven), int(of.proven))
	want("maybe", int(c.maybe), int(of.maybe))
	want("unknown", int(c.unknown), int(of.unknown))
	want("marks seen", int(c.marks), int(of.marks))
	want("snapshots saved", c.saved, of.saved)
	want("snapshots loaded", c.loaded, of.loaded)
	return missing
}

func (v *verdict) ok() bool { return v.lost+v.doubled+v.stale+v.other == 0 }

func (v *verdict) String() string {
	return fmt.Sprintf("%d lost, %d doubled, %d stale, %d others; second effects with a reason: %v", v.lost, v.doubled, v.stale, v.other, v.explained)
}

// story tells all that is known of a key, for whoever looks for what went wrong.
func (h *history) story(key uint64) string {
	var b strings.Builder
	since := int64(1 << 62)
	for i := range h.runs {
		since = min(since, h.runs[i].claimed)
	}
	at := func(ns int64) string {
		if ns == 0 {
			return "never"
		}
		return time.Duration(ns - since).Round(10 * time.Microsecond).String()
	}
	fmt.Fprintf(&b, "poison %v", h.poison[key])
	for _, r := range h.runs {
		if r.key == key {
			fmt.Fprintf(&b, "\n  process %d in %v, epoch %d, attempt %d: claimed %s, begun %s, ended %s, mark sent %s, answered %s, refused %s; died %s",
				r.child, r.place, r.epoch, r.attempt, at(r.claimed), at(r.begun), at(r.ended), at(r.sent), at(r.acked), at(r.lost), at(h.deaths[r.child]))
		}
	}
	for where, from := range h.between(key) {
		for _, g := range h.grants[where] {
			if g.at >= from && g.sent <= from+int64(5*time.Second) {
				fmt.Fprintf(&b, "\n  process %d was given %v at %s to %s: epoch %d, turn %d", g.child, where, at(g.sent), at(g.at), g.epoch, g.seq)
			}
		}
	}
	for _, p := range h.pauses {
		fmt.Fprintf(&b, "\n  process %d stood still from %s to %s", p.child, at(p.from), at(p.to))
	}
	for _, a := range h.answers {
		if a.key == key {
			fmt.Fprintf(&b, "\n  process %d in %v, epoch %d, was told at %s: outcome %d, attempt %d", a.child, a.place, a.epoch, at(a.at), a.outcome, a.attempt)
		}
	}
	for _, s := range h.skips {
		if s.key == key {
			fmt.Fprintf(&b, "\n  skipped at %s", at(s.at))
		}
	}
	return b.String()
}

// between says where a key ran, and since when.
func (h *history) between(key uint64) map[place]int64 {
	all := map[place]int64{}
	for _, r := range h.runs {
		if r.key == key {
			all[r.place] = min(cmp.Or(all[r.place], r.claimed), r.claimed)
		}
	}
	return all
}
