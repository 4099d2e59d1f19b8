package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// faultTrouble is a fault that the test caused in a process, or in a server when pid is 0.
type faultTrouble struct {
	what     string // killed, stopped, cut from Redis, Redis killed, ...
	pid      int
	from, to time.Time
}

// excuses reports whether the trouble may have kept the process pid from recording an effect
// between from and to. Trouble of a broker is not a reason.
func (t faultTrouble) excuses(pid int, from, to time.Time) bool {
	if t.pid != 0 && t.pid != pid || strings.Contains(t.what, "broker") {
		return false
	}
	return t.from.Before(to) && t.to.Add(faultGrace).After(from)
}

// faultGrace is how long a client may take to connect again after a trouble.
const faultGrace = time.Second

// seenCommit is an offset that the group had at a moment, or that was written into its log then.
type seenCommit struct {
	partition int32
	offset    int64
	at        time.Time
}

// faultJudge finds out what happened to the messages of one topic in one group. It compares the
// topic, the group's offsets, the troubles, and the lines that the processes wrote. It uses no code
// of the library.
type faultJudge struct {
	log      map[int32][]string // the id at every position
	commits  []seenCommit
	troubles []faultTrouble
	lines    []faultLine
}

// faultResult is what the judge has found.
type faultResult struct {
	messages, ids, deliveries, effects, parked, commits int

	lost, ahead, unexplained []string
	doubled                  int
	reasons                  map[string]int // of doubles
	ended                    []string       // Run returned an error
}

func (v *faultResult) String() string {
	return fmt.Sprintf("messages %d, ids %d, deliveries %d, effects %d, lost %d, commits %d, "+
		"commits ahead %d, parked %d, doubled %d %v, unexplained %d, ended %d", v.messages, v.ids,
		v.deliveries, v.effects, len(v.lost), v.commits, len(v.ahead), v.parked, v.doubled,
		v.reasons, len(v.unexplained), len(v.ended))
}

// faultRun is one effect of an id.
type faultRun struct {
	pid           int
	begun, effect time.Time
	recorded      time.Time // zero when no line says it
	lost          bool      // the process says that it lost the claim
	partition     int32
	offset        int64
}

func (j *faultJudge) judge() *faultResult {
	v := &faultResult{reasons: map[string]int{}, commits: len(j.commits)}
	runs, parked := j.runs(v)
	known := map[string]bool{}
	for _, ids := range j.log {
		v.messages += len(ids)
		for _, id := range ids {
			if known[id] {
				continue
			}
			known[id] = true
			if len(runs[id]) == 0 && parked[id].IsZero() {
				v.lost = append(v.lost, id)
			}
		}
	}
	v.ids, v.parked = len(known), len(parked)
	for id, all := range runs {
		v.effects += len(all)
		if !known[id] {
			v.unexplained = append(v.unexplained, id+" was never sent")
		}
		j.doubles(v, id, all)
	}
	j.aheads(v, runs, parked)
	slices.Sort(v.lost)
	return v
}

// runs returns the effects of each id, in the order in which they began, and the time at which an
// id was parked.
func (j *faultJudge) runs(v *faultResult) (map[string][]*faultRun, map[string]time.Time) {
	type by struct { // an id may run at two positions of one process
		id        string
		pid       int
		partition int32
		offset    int64
	}
	runs, parked := map[string][]*faultRun{}, map[string]time.Time{}
	begun, last := map[by]time.Time{}, map[by]*faultRun{}
	for _, l := range j.lines {
		at := by{l.id, l.pid, l.partition, l.offset}
		switch l.what {
		case "delivered":
			v.deliveries++
		case "begun":
			begun[at] = l.at
		case "effect":
			last[at] = &faultRun{pid: l.pid, begun: begun[at], effect: l.at,
				partition: l.partition, offset: l.offset}
			runs[l.id] = append(runs[l.id], last[at])
		case "recorded":
			if r := last[at]; r != nil {
				r.recorded = l.at
			}
		case "lost", "unrecorded":
			if r := last[at]; r != nil {
				r.lost = true
			}
		case "parked":
			parked[l.id] = l.at
		case "ended":
			v.ended = append(v.ended, l.id)
		}
	}
	for _, all := range runs {
		// A process that was stopped in a handler may have its effect after the next process.
		slices.SortFunc(all, func(a, b *faultRun) int { return a.begun.Compare(b.begun) })
	}
	return runs, parked
}

// doubles requires a reason for every run of an id before the one that began last.
func (j *faultJudge) doubles(v *faultResult, id string, all []*faultRun) {
	for i, r := range all[:len(all)-1] {
		v.doubled++
		next := all[i+1]
		if why := j.reason(r, next); why != "" {
			v.reasons[why]++
			continue
		}
		v.unexplained = append(v.unexplained, fmt.Sprintf(
			"%s by %d at %d@%d: begun %s, effect %s, recorded %s; again by %d at %d@%d: begun %s",
			id, r.pid, r.partition, r.offset, clock(r.begun), clock(r.effect), clock(r.recorded),
			next.pid, next.partition, next.offset, clock(next.begun)))
	}
}

// reason returns why r may not have been on record when next began, or "". Something must have
// happened to the process of r, or to Redis, between the begin of r and its record.
func (j *faultJudge) reason(r, next *faultRun) string {
	until := next.begun
	if !r.recorded.IsZero() && r.recorded.Before(until) {
		until = r.recorded
	}
	for _, t := range j.troubles {
		if t.excuses(r.pid, r.begun, until) {
			return t.what
		}
	}
	if r.lost {
		return "its lease was lost, it says"
	}
	return ""
}

// aheads looks for commits beyond a message whose effect came later, or never.
func (j *faultJudge) aheads(v *faultResult, runs map[string][]*faultRun,
	parked map[string]time.Time) {
	done := func(id string, at time.Time) bool {
		// CommitTimestamp is rounded down to milliseconds
		by := at.Add(time.Millisecond)
		if p := parked[id]; !p.IsZero() && !p.After(by) {
			return true
		}
		return slices.ContainsFunc(runs[id],
			func(r *faultRun) bool { return !r.effect.After(by) })
	}
	slices.SortFunc(j.commits, func(a, b seenCommit) int { return a.at.Compare(b.at) })
	checked := map[int32]int64{}
	for _, c := range j.commits {
		ids := j.log[c.partition]
		if c.offset > int64(len(ids)) {
			v.ahead = append(v.ahead, fmt.Sprintf("%d@%d is beyond the end, %d", c.partition,
				c.offset, len(ids)))
			continue
		}
		for o := checked[c.partition]; o < c.offset; o++ {
			if !done(ids[o], c.at) {
				v.ahead = append(v.ahead, fmt.Sprintf("%d@%d at %s, before the effect of %s",
					c.partition, c.offset, clock(c.at), ids[o]))
			}
		}
		checked[c.partition] = max(checked[c.partition], c.offset)
	}
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format("15:04:05.000000")
}
