package owned_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// checkResult is the result of judging a history.
type checkResult struct {
	lost, doubled, stale, other int
	capped                      int            // keys that killed exactly as often as they may
	explained                   map[string]int // second effects, by their reason
	problems                    []string       // the first few of each kind
}

// problem counts a problem, and keeps the text of the first few of each kind.
func (v *checkResult) problem(n *int, format string, args ...any) {
	const enough = 8
	*n++
	if *n <= enough {
		v.problems = append(v.problems, fmt.Sprintf(format, args...))
	}
}

// judge checks a history against the promise of docs/internals/owned.md.
func judge(h *history) *checkResult {
	v := &checkResult{explained: map[string]int{}}
	slices.SortFunc(h.runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.claimed, b.claimed),
			cmp.Compare(a.begun, b.begun))
	})
	v.keys(h)
	v.second(h)
	v.seen(h)
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

// keys: each key has an effect, or is dead, and was skipped only after that.
func (v *checkResult) keys(h *history) {
	first := map[uint64]int64{}
	for i := range h.runs {
		if r := &h.runs[i]; r.ended > 0 {
			first[r.key] = min(cmp.Or(first[r.key], r.ended), r.ended)
		}
	}
	for _, l := range h.deadMessages {
		first[l.key] = min(cmp.Or(first[l.key], l.at), l.at)
	}
	for _, key := range h.sent {
		if first[key] == 0 {
			v.problem(&v.lost, "key %x is lost: no effect of it ended", key)
		}
	}
	for _, s := range h.skips {
		if at := first[s.key]; at == 0 || at > s.at {
			v.problem(&v.lost, "key %x was called a duplicate before any effect of it had ended",
				s.key)
		}
	}
}

// seen: every mark whose process got an answer was also seen on the wire. Otherwise the judge
// could say nothing about epochs.
func (v *checkResult) seen(h *history) {
	told := uint64(0)
	for i := range h.runs {
		if r := &h.runs[i]; r.acked > 0 && h.guarded(r) {
			told++
		}
	}
	if told > h.counts.marks {
		v.problem(&v.other, "%d marks were answered, and %d seen", told, h.counts.marks)
	}
}

// epochs: no turn is written under an epoch below one that was given before.
func (v *checkResult) epochs(h *history) {
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

// short names the counts that are too small.
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
	want("effects while their partition was released", c.running, of.running)
	want("marks seen", int(c.marks), int(of.marks))
	want("snapshots saved", c.saved, of.saved)
	want("snapshots loaded", c.loaded, of.loaded)
	return missing
}

func (v *checkResult) ok() bool { return v.lost+v.doubled+v.stale+v.other == 0 }

// tale builds its story only when it is printed, because few are.
type tale struct {
	h   *history
	key uint64
}

func (t tale) String() string { return t.h.story(t.key) }

// story returns all that is known of a key, for a person who looks for the error.
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
	ran := map[int]bool{}
	fmt.Fprintf(&b, "poison %v", h.poison[key])
	for _, r := range h.runs {
		if r.key == key {
			ran[r.child] = true
			fmt.Fprintf(&b, "\n  process %d in %v, epoch %d, attempt %d: claimed %s, begun %s, ended %s, mark sent %s, answered %s, refused %s; died %s",
				r.child, r.partition, r.epoch, r.attempt, at(r.claimed), at(r.begun), at(r.ended),
				at(r.sent), at(r.acked), at(r.lost), at(h.deaths[r.child]))
			if r.lost > 0 {
				for _, why := range h.refusalsNear(r.child, r.lost) {
					fmt.Fprintf(&b, "\n    refused at %s: %s", at(why.at), why.text)
				}
			}
		}
	}
	for where, all := range h.grants {
		for _, g := range all {
			if h.near(key, where, &g) {
				fmt.Fprintf(&b, "\n  process %d was given %v at %s to %s: epoch %d after %d, turn %d", g.child, where, at(g.sent), at(g.at), g.epoch, g.before, g.seq)
			}
		}
	}
	for _, p := range h.pauses {
		if !ran[p.child] {
			continue
		}
		fmt.Fprintf(&b, "\n  process %d stood still from %s to %s", p.child, at(p.from), at(p.to))
	}
	for _, a := range h.answers {
		if a.key == key {
			fmt.Fprintf(&b, "\n  process %d in %v, epoch %d, was told at %s: outcome %d, attempt %d", a.child, a.partition, a.epoch, at(a.at), a.outcome, a.attempt)
		}
	}
	for _, s := range h.skips {
		if s.key == key {
			fmt.Fprintf(&b, "\n  skipped at %s", at(s.at))
		}
	}
	return b.String()
}

// near reports whether a partition was granted just before, or soon after, a key was claimed there.
func (h *history) near(key uint64, where partition, g *grant) bool {
	return slices.ContainsFunc(h.runs, func(r run) bool {
		return r.key == key && r.partition == where && g.at >= r.claimed-int64(2*time.Second) &&
			g.sent <= r.claimed+int64(5*time.Second)
	})
}
