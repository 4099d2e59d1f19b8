package torture_test

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// never is later than any other time.
const never = math.MaxInt64

// span is a time in which something lasted.
type span struct{ from, to int64 }

func (s span) meets(from, to int64) bool { return s.from <= to && from <= s.to }

// effect is one run of an effect.
type effect struct {
	child        int
	run          uint64
	message      uint32
	begun, ended int64
	sent         int64 // when its claim was sent first
	ending       int64 // when its mark was sent, or its effect ended if no mark was sent
	claimed      int64 // when the claim that was granted was sent
	granted      int64 // when that claim was answered
	marked       int64 // when its mark was answered as written; never otherwise
	doubtful     bool  // one of its calls was answered with "unknown", or not at all
}

// strike is what a nemesis did.
type strike struct {
	span
	code strikeCode
}

// ack is an acknowledgment that was sent to the source.
type ack struct {
	child   int
	message uint32
	at      int64
}

// history is what all ledgers say.
type history struct {
	lease    int64
	messages int
	atomic   bool
	allowed  []reason
	// undecided says that the row accepts any result of Porcupine.
	undecided bool
	sink      map[[2]uint64]int // at level Atomic: rows, by process and run
	effects   map[uint32][]*effect
	acks      []ack
	deaths    map[int]int64
	pauses    map[int][]span
	stalls    map[int][]span
	strikes   []strike
	ops       map[uint32][]*operation
	slow      []span        // operations that took longer than grace; nil until they are asked for
	points    map[point]int // met
	asked     int           // questions to the downstream
	cuts      [3]int        // cut COMMITs, by kind
	runs      int           // effects that have ended
}

func newHistory() *history {
	return &history{
		effects: map[uint32][]*effect{}, deaths: map[int]int64{}, pauses: map[int][]span{},
		stalls: map[int][]span{}, ops: map[uint32][]*operation{}, points: map[point]int{},
	}
}

// read takes in all ledgers of a directory.
func (h *history) read(dir string) error {
	type id struct {
		child int
		run   uint64
	}
	effects, ops := map[id]*effect{}, map[id]*operation{}
	err := readLedgers(dir, func(child int, r record) {
		at := id{child, r.run}
		switch r.kind {
		case effectBegun:
			effects[at] = &effect{child: child, run: r.run, message: r.message, begun: r.at,
				claimed: r.at, granted: r.at, marked: never}
		case effectEnded:
			if e := effects[at]; e != nil {
				e.ended = r.at
			}
		case acking:
			h.acks = append(h.acks, ack{child, r.message, r.at})
		case dying, stopping:
			h.points[point(r.code)]++
		case stalled:
			h.stalls[child] = append(h.stalls[child], span{r.at - r.arg, r.at})
		case called:
			o := &operation{child: child, op: r.op, token: r.token, lease: r.arg, asked: r.flags,
				call: r.at}
			ops[at] = o
			h.ops[r.message] = append(h.ops[r.message], o)
		case answered:
			if o := ops[at]; o != nil {
				o.code, o.said, o.back = r.code, r.flags, r.at
			}
		case died:
			h.deaths[int(r.arg)] = r.at
		case paused:
			h.pauses[int(r.arg)] = append(h.pauses[int(r.arg)], span{int64(r.run), r.at})
		case struck:
			h.strikes = append(h.strikes,
				strike{span{int64(r.run), r.at + r.arg}, strikeCode(r.code)})
		case oracled:
			h.asked++
		case cutting:
			h.cuts[r.code]++
		case refusing:
		}
	})
	for _, e := range effects {
		h.add(e)
	}
	return err
}

// add adds an effect that has ended. At level Atomic it adds the effect once for each of its rows
// in the database.
func (h *history) add(e *effect) {
	rows := 1
	if h.atomic {
		rows = h.sink[[2]uint64{uint64(e.child), e.run}]
	}
	if e.ended == 0 {
		return
	}
	for range rows {
		h.effects[e.message] = append(h.effects[e.message], e)
		h.runs++
	}
}

// settle finds out when effects were claimed and marked, and sorts them in the order in which their
// claims were granted.
func (h *history) settle() {
	for message, effects := range h.effects {
		for _, e := range effects {
			h.follow(e, h.ops[message])
		}
		slices.SortStableFunc(effects, func(a, b *effect) int {
			return cmp.Or(cmp.Compare(a.granted, b.granted), cmp.Compare(a.begun, b.begun))
		})
	}
}

func (h *history) follow(e *effect, ops []*operation) {
	var token uint64
	for _, o := range ops {
		if o.child == e.child && o.op == opClaim && o.code == saidAcquired && o.back <= e.begun &&
			(token == 0 || o.call > e.claimed) {
			e.claimed, e.granted, token = o.call, o.back, o.token
		}
	}
	e.sent, e.ending = e.claimed, e.ended
	for _, o := range ops { // what ends a claim was sent after the effect
		if o.child == e.child && (o.op == opFinish && o.token == token || o.op == opBehind) &&
			o.call >= e.ended && (e.ending == e.ended || o.call < e.ending) {
			e.ending = o.call
		}
	}
	for _, o := range ops {
		if o.child == e.child && o.op == opClaim && o.token == token {
			e.sent = min(e.sent, o.call)
		}
	}
	for _, o := range ops {
		if o.child != e.child || o.token != token && o.op != opBehind || o.call < e.claimed {
			continue
		}
		if o.back == 0 || o.code == saidUnknown {
			e.doubtful = true
		}
		if o.op == opFinish && o.said&flagWritten != 0 {
			e.marked = min(e.marked, o.back)
		}
	}
}

// died returns when a process died, or never.
func (h *history) died(child int) int64 {
	if at, dead := h.deaths[child]; dead {
		return at
	}
	return never
}

// grace is by how much a claim may outlast its owner's death and its lease.
const grace = int64(250 * time.Millisecond)
