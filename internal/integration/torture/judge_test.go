package torture_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// reason is why an effect may have run again.
type reason string

const (
	byDeath reason = "died"   // the earlier process died before its mark was answered
	byPause reason = "paused" // it was stopped between its claim and the answer to its mark
	// it got no processor, or reached its mark only after a third of the lease
	byStall   reason = "stalled"
	byAmnesia reason = "forgot" // the server lost its data
	byClock   reason = "clock"  // the server's clock jumped, and its lease ended early
	// the server or the wire had an outage, and it is unknown whether its mark was written
	byOutage reason = "unmarked"
)

// strikeCode says what kind of fault a nemesis causes.
type strikeCode uint8

const (
	strikeOutage  strikeCode = 1 + iota // calls fail, no data is lost
	strikeAmnesia                       // acknowledged data may be lost
	strikeWire                          // some commands or replies get lost, no time passes
	strikeFull                          // new claims are refused: that excuses nothing
	strikeClock                         // leases end too early or too late
)

// checkResult is the result of judging a history.
type checkResult struct {
	lost, doubled, stuck, selfDuplicates int
	explained                            map[string]int // second effects, by their reason
	linear                               porcupine.CheckResult
	operations                           int // in the histories that were checked
	open                                 int // keys whose history was not decided in time
	took                                 time.Duration
	problems                             []string // the first few of each kind
}

// problem counts a problem, and keeps the text of the first few of each kind.
func (v *checkResult) problem(n *int, h *history, message uint32, format string, args ...any) {
	const enough = 3
	*n++
	if *n <= enough {
		v.problems = append(v.problems, fmt.Sprintf(format, args...)+h.story(message))
	}
}

// judge checks a history against docs/internals/torture.md.
func judge(h *history) *checkResult {
	v := &checkResult{explained: map[string]int{}, linear: porcupine.Ok}
	h.settle()
	v.lostOnes(h)
	v.second(h)
	v.inFlight(h)
	v.own(h)
	v.histories(h)
	return v
}

// lostOnes: every message has an effect and an ack, and no ack comes before an effect.
func (v *checkResult) lostOnes(h *history) {
	acked := map[uint32]bool{}
	for _, a := range h.acks {
		acked[a.message] = true
		if !slices.ContainsFunc(h.effects[a.message], func(e *effect) bool {
			return e.ended <= a.at
		}) {
			v.problem(&v.lost, h, a.message,
				"message %d was acknowledged at %v by process %d, and no effect had ended",
				a.message, ms(a.at), a.child)
		}
	}
	for m := range uint32(h.messages) {
		switch {
		case len(h.effects[m]) == 0 && !acked[m]:
			v.problem(&v.lost, h, m, "message %d had no effect", m)
		case len(h.effects[m]) > 0 && !acked[m]:
			v.problem(&v.lost, h, m, "message %d was not acknowledged", m)
		}
	}
}

// second: each effect but the first needs a reason for each effect that was claimed before it.
func (v *checkResult) second(h *history) {
	for message, effects := range h.effects {
		for i, e := range effects {
			why := reason("")
			for _, before := range effects[:i] {
				if why = h.excuse(before, e); why == "" && e.claimed <= before.granted {
					why = h.excuse(e, before) // either claim may have been executed first
				}
				if why == "" {
					break
				}
			}
			switch {
			case i == 0:
			case why == "":
				v.problem(&v.doubled, h, message,
					"message %d ran again at %v in process %d without a reason", message,
					ms(e.begun), e.child)
			case !slices.Contains(h.allowed, why):
				v.problem(&v.doubled, h, message,
					"message %d ran again at %v in process %d because the one before had %s, which is no reason here",
					message, ms(e.begun), e.child, why)
			default:
				v.explained[string(why)]++
			}
		}
	}
}

// excuse returns why an effect could happen although another one was claimed before it, or "".
func (h *history) excuse(before, e *effect) reason {
	if h.atomic {
		return ""
	}
	for _, s := range h.strikes {
		if s.code == strikeAmnesia &&
			s.meets(min(before.claimed, e.claimed), max(before.begun, e.begun)) {
			return byAmnesia
		}
	}
	if before.marked <= e.claimed {
		return "" // it was on record, and the claim missed it
	}
	until := min(before.marked, e.begun)
	within := func(s span) bool { return s.meets(before.claimed, until) }
	var all []reason
	if slices.ContainsFunc(h.strikes, func(s strike) bool {
		return s.code == strikeClock && within(s.span)
	}) {
		all = append(all, byClock)
	}
	if died := h.died(before.child); died <= before.marked && died < never {
		all = append(all, byDeath)
	}
	if slices.ContainsFunc(h.pauses[before.child], within) ||
		before.doubtful && h.blocked(before.message, within) {
		all = append(all, byPause)
	}
	// A lease counts from when its claim was first sent. Little of it is left after many tries, or
	// when the machine is slow afterwards.
	if before.ending-before.sent > h.lease/3 ||
		slices.ContainsFunc(h.stalls[before.child], within) {
		all = append(all, byStall)
	}
	if before.doubtful && slices.ContainsFunc(h.strikes, func(s strike) bool {
		return (s.code == strikeOutage || s.code == strikeWire) && within(s.span)
	}) {
		all = append(all, byOutage)
	}
	if len(all) == 0 {
		return ""
	}
	// A process that was stopped and killed later has two reasons, and the row may allow only one.
	return all[max(0, slices.IndexFunc(all, func(r reason) bool {
		return slices.Contains(h.allowed, r)
	}))]
}

// inFlight: no claim is answered "in flight" when all processes that could own the key have ended,
// or have been dead for longer than a lease.
func (v *checkResult) inFlight(h *history) {
	for message, ops := range h.ops {
		until := h.ends(ops)
		for _, o := range ops {
			if o.op != opClaim || o.code != saidInFlight {
				continue
			}
			alive := false
			for _, other := range ops {
				if other.op == opClaim && other.token != o.token && other.call <= o.back &&
					h.remembered(until[other.token], other.call, o) >= o.call {
					alive = alive || h.mayHaveHeld(other)
				}
			}
			if !alive {
				v.problem(&v.stuck, h, message,
					"message %d was called in flight at %v in process %d, and had no owner",
					message, ms(o.call), o.child)
			}
		}
	}
}

// mayHaveHeld reports whether a claim may have been executed and have won. If the server lost its
// data during a claim, the claim may have been sent twice: it won the first time, and the second
// answer reports what others had done since.
func (h *history) mayHaveHeld(o *operation) bool {
	return o.back == 0 || o.code == saidAcquired || o.code == saidUnknown || h.askedTwice(o)
}

func (h *history) askedTwice(o *operation) bool {
	return o.op == opClaim && slices.ContainsFunc(h.strikes, func(s strike) bool {
		return s.code == strikeAmnesia && s.meets(o.call, o.back)
	})
}

// blocked reports whether another owner of the message was stopped, perhaps with a row locked.
func (h *history) blocked(message uint32, within func(span) bool) bool {
	return slices.ContainsFunc(h.effects[message], func(e *effect) bool {
		return slices.ContainsFunc(h.pauses[e.child], within)
	})
}

// remembered returns until when a claim that was sent at since may have held its key. It ended at
// until, but a server that fails in between may lose that end.
func (h *history) remembered(until, since int64, o *operation) int64 {
	for _, s := range h.strikes {
		// A slow server may execute a command after its client has given up.
		if (s.code == strikeAmnesia || s.code == strikeOutage) && s.meets(since, o.back) {
			until = max(until, s.to+h.lease+grace)
		}
		// A lease that was made while the clock was ahead lasts until the clock is that far again,
		// which is after the last shift.
		if s.code == strikeClock {
			until = max(until, s.to+h.lease+grace)
		}
	}
	return until
}

// served returns a time at which the servers have executed everything that was sent before at: all
// slow commands that were sent before at have been answered. A Redis that waits for its disk
// executes nothing for up to two seconds.
func (h *history) served(at int64) int64 {
	if h.slow == nil {
		h.slow = []span{}
		for _, ops := range h.ops {
			for _, o := range ops {
				if o.back-o.call > grace {
					h.slow = append(h.slow, span{o.call, o.back})
				}
			}
		}
	}
	by := at
	for _, s := range h.slow {
		if s.from <= at {
			by = max(by, s.to)
		}
	}
	return by
}

// ends returns until when each token may have owned a key.
func (h *history) ends(ops []*operation) map[uint64]int64 {
	until, ended := map[uint64]int64{}, map[uint64]bool{}
	unknown, last := map[uint64]bool{}, map[uint64]int64{}
	for _, o := range ops {
		if o.op == opClaim && o.back > 0 && o.code == saidUnknown {
			unknown[o.token] = true
		}
		last[o.token] = max(last[o.token], o.back)
		over := never - grace
		switch unknown := o.back == 0 || o.code == saidUnknown; {
		case unknown && h.died(o.child) < never:
			over = h.served(h.died(o.child)) + h.lease
		case unknown && o.back > 0, o.code != saidAcquired && h.askedTwice(o):
			over = o.back + h.lease // the claim is sent again, or given up
		case o.op == opClaim && o.code == saidAcquired, o.op == opRenew:
			if h.died(o.child) < never {
				over = h.died(o.child) + h.lease
			}
		case o.op == opFinish || o.op == opRelease:
			until[o.token], ended[o.token] = o.back, true
			continue
		default:
			continue
		}
		if !ended[o.token] {
			until[o.token] = max(until[o.token], over+grace)
		}
	}
	// a claim whose reply nobody waited for may be executed after the release that followed it
	for token := range unknown {
		until[token] = max(until[token], last[token]+h.lease+grace)
	}
	return until
}

// own: no claim is answered "in flight" when no other claim was sent.
func (v *checkResult) own(h *history) {
	for message, ops := range h.ops {
		for i, o := range ops {
			if o.op != opClaim || o.code != saidInFlight {
				continue
			}
			sent, foreign := false, false
			for j, other := range ops {
				switch {
				case i == j || other.op != opClaim || other.call > o.back:
				case other.token == o.token:
					sent = true
				case h.mayHaveHeld(other):
					foreign = true
				}
			}
			if sent && !foreign {
				v.problem(&v.selfDuplicates, h, message,
					"message %d was called in flight at %v in process %d, by its own claim",
					message, ms(o.call), o.child)
			}
		}
	}
}

// histories checks the history of each key with Porcupine, until one is illegal. Slow keys come
// last. If the row accepts any result, they are left out.
func (v *checkResult) histories(h *history) {
	began := time.Now()
	keys := map[uint32][]*operation{}
	for message, ops := range h.ops {
		keys[message] = slices.DeleteFunc(slices.Clone(ops), (*operation).irrelevant)
		v.operations += len(keys[message])
	}
	keys = v.decided(h, keys, 500*time.Millisecond)
	if v.linear == porcupine.Ok && !h.undecided {
		keys = v.decided(h, keys, 20*time.Second)
		v.open = len(keys)
	}
	if v.linear == porcupine.Ok && len(keys) > 0 {
		// on a busy machine a key or two have too many unknown answers
		if len(keys) > 1+h.messages/100 {
			v.linear = porcupine.Unknown
		}
		for message := range keys {
			v.problems = append(v.problems,
				"the history of a key could not be decided in time"+h.story(message))
			break
		}
	}
	v.took = time.Since(began)
}

// decided gives each key at most limit, and returns the keys that it could not decide.
func (v *checkResult) decided(h *history, keys map[uint32][]*operation,
	limit time.Duration) map[uint32][]*operation {
	left := map[uint32][]*operation{}
	for message, ops := range keys {
		switch check(ops, limit) {
		case porcupine.Illegal:
			v.linear = porcupine.Illegal
			v.problems = append(v.problems,
				"ILLEGAL: this history of a key cannot be"+h.story(message))
			return nil
		case porcupine.Unknown:
			left[message] = ops
		case porcupine.Ok:
		}
	}
	return left
}

// irrelevant reports whether an operation has no place in the history of a key, or certainly
// changed nothing. A transaction commits only with its effect, so one that did not reach its effect
// left no record.
func (o *operation) irrelevant() bool {
	return o.op == opBehind || o.op == opMark && o.back > 0 && o.code == saidUnknown &&
		o.said&flagRan == 0
}

// story returns all that is known of a message, for a person who looks for the error.
func (h *history) story(message uint32) string {
	type line struct {
		at   int64
		text string
	}
	var all []line
	add := func(at int64, format string, args ...any) {
		all = append(all, line{at, fmt.Sprintf(format, args...)})
	}
	children := map[int]bool{}
	for _, e := range h.effects[message] {
		children[e.child] = true
		add(e.begun, "process %d begins the effect, run %d, claimed at %v", e.child, e.run,
			ms(e.claimed))
		add(e.ended, "process %d ends it; marked at %v", e.child, ms(e.marked))
	}
	inFlight := 0
	for _, o := range h.ops[message] {
		if o.code == saidInFlight {
			inFlight++ // there are too many of these to print
			continue
		}
		children[o.child] = true
		add(o.call, "process %d: %v", o.child, o)
	}
	for _, a := range h.acks {
		if a.message == message {
			add(a.at, "process %d acknowledges", a.child)
		}
	}
	for child := range children {
		if at := h.died(child); at < never {
			add(at, "process %d is dead", child)
		}
		for _, s := range h.pauses[child] {
			add(s.from, "process %d stands still until %v", child, ms(s.to))
		}
		for _, s := range h.stalls[child] {
			add(s.from, "process %d does not get to run until %v", child, ms(s.to))
		}
	}
	first, last := int64(never), int64(0)
	for _, l := range all {
		first, last = min(first, l.at), max(last, l.at)
	}
	for _, s := range h.strikes {
		if !s.meets(first-int64(time.Second), last+int64(time.Second)) {
			continue
		}
		add(s.from, "strike %d until %v", s.code, ms(s.to))
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	fmt.Fprintf(&b, "\n    (%d answers of \"in flight\" are left out)", inFlight)
	for _, l := range all[:min(len(all), 80)] {
		fmt.Fprintf(&b, "\n    %v %s", ms(l.at), l.text)
	}
	return b.String()
}

// String describes an operation.
func (o *operation) String() string {
	name := [...]string{"", "claim", "renew", "finish", "release", "mark", "(behind)"}[o.op]
	said := [...]string{"unknown", "acquired", "duplicate", "in flight", "uncertain", "",
		"something else"}[o.code]
	if o.back == 0 {
		said = "no answer"
	}
	return fmt.Sprintf("%s of %x (flags %b) until %v: %s (flags %b)", name, o.token&0xffff,
		o.asked, ms(o.back), said, o.said)
}
