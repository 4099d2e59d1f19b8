package torture_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const milli = int64(time.Millisecond)

// tale is a history that a test writes by hand, into files like those of processes. Its times are
// in ms, its lease is 100 ms, and it has one message, 0.
type tale struct {
	t   *testing.T
	dir string
	of  map[int]*ledger
}

func (s *tale) say(child int, all ...record) {
	s.t.Helper()
	if s.of[child] == nil {
		l, err := openLedger(s.dir, child)
		require.NoError(s.t, err)
		s.t.Cleanup(func() { _ = l.file.Close() })
		s.of[child] = l
	}
	for i := range all {
		all[i].at *= milli
	}
	s.of[child].write(all...)
}

// op writes an operation that was called at from and answered at to, or not answered if to is 0.
func (s *tale) op(child int, kind op, token uint64, from, to int64, code, flags uint8) {
	s.t.Helper()
	run := uint64(from)<<8 | token
	s.say(child, record{kind: called, op: kind, run: run, token: token, arg: 100 * milli,
		at: from, flags: flags & (flagIrreversible | flagApplied)})
	if to > 0 {
		s.say(child, record{kind: answered, op: kind, run: run, token: token, at: to, code: code,
			flags: flags &^ (flagIrreversible | flagApplied)})
	}
}

func (s *tale) claims(child int, token uint64, at int64) {
	s.op(child, opClaim, token, at, at+1, saidAcquired, 0)
}

// runs writes an effect of 3 ms. Its run has the number at.
func (s *tale) runs(child int, at int64) {
	s.say(child, record{kind: effectBegun, run: uint64(at), at: at},
		record{kind: effectEnded, run: uint64(at), at: at + 3})
}

func (s *tale) marks(child int, token uint64, at int64) {
	s.op(child, opFinish, token, at, at+1, saidEnded, flagHeld|flagWritten)
}

func (s *tale) acks(child int, at int64) { s.say(child, record{kind: acking, at: at}) }

// good writes a delivery without any fault.
func (s *tale) good(child int, token uint64, at int64) {
	s.claims(child, token, at)
	s.runs(child, at+2)
	s.marks(child, token, at+6)
	s.acks(child, at+8)
}

func (s *tale) dies(child int, at int64) { s.say(0, record{kind: died, arg: int64(child), at: at}) }
func (s *tale) strikes(code strikeCode, a, b int64) {
	s.say(0, record{kind: struck, code: uint8(code), run: uint64(a * milli), at: b})
}
func (s *tale) pauses(child int, a, b int64) {
	s.say(0, record{kind: paused, arg: int64(child), run: uint64(a * milli), at: b})
}

// judged is the part of a checkResult that the rows compare.
type judged struct {
	lost, doubled, stuck, own, explained int
	illegal                              bool
}

var judgeRows = []struct {
	name string
	tell func(s *tale)
	want judged
}{
	{"once", func(s *tale) { s.good(1, 1, 10) }, judged{}},
	{"a duplicate", func(s *tale) {
		s.good(1, 1, 10)
		s.op(2, opClaim, 2, 30, 31, saidDuplicate, 0)
		s.acks(2, 32)
	}, judged{}},
	{"nothing at all", func(*tale) {}, judged{lost: 1}},
	{"an effect that began and did not end", func(s *tale) {
		s.claims(1, 1, 10)
		s.say(1, record{kind: effectBegun, run: 1, at: 12})
		s.dies(1, 13)
	}, judged{lost: 1}},
	{"no ack", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.marks(1, 1, 16)
	}, judged{lost: 1}},
	{"an ack before the effect", func(s *tale) {
		s.claims(1, 1, 10)
		s.acks(2, 12)
		s.runs(1, 13)
		s.marks(1, 1, 17)
		s.acks(1, 19)
	}, judged{lost: 1}},
	{"an ack for a mark without an effect", func(s *tale) {
		s.claims(1, 1, 10)
		s.marks(1, 1, 12)
		s.dies(1, 14)
		s.op(2, opClaim, 2, 30, 31, saidDuplicate, 0)
		s.acks(2, 32)
	}, judged{lost: 1}},
	{"again, after a death before the mark", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.dies(1, 16)
		s.good(2, 2, 120)
	}, judged{explained: 1}},
	{"again, after a death before the mark's answer", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.op(1, opFinish, 1, 15, 0, 0, 0)
		s.dies(1, 16)
		s.good(2, 2, 120)
	}, judged{explained: 1}},
	{"again, after a death behind the mark's answer", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.marks(1, 1, 16)
		s.dies(1, 18)
		s.good(2, 2, 120)
	}, judged{doubled: 1, illegal: true}},
	{"again, without a reason", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.good(2, 2, 120)
	}, judged{doubled: 1}},
	{"again, though another process died", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.dies(3, 16)
		s.good(2, 2, 120)
	}, judged{doubled: 1}},
	{"again, within the lease", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.dies(1, 16)
		s.good(2, 2, 40)
	}, judged{explained: 1, illegal: true}},
	{"again, after a pause", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.pauses(1, 16, 300)
		s.good(2, 2, 120)
		s.op(1, opFinish, 1, 301, 302, saidEnded, 0)
	}, judged{explained: 1}},
	{"again by who was paused", func(s *tale) {
		s.claims(1, 1, 10)
		s.pauses(1, 12, 300)
		s.good(2, 2, 120)
		s.runs(1, 301)
		s.op(1, opFinish, 1, 305, 306, saidEnded, 0)
	}, judged{explained: 1}},
	{"again, after a pause before the claim", func(s *tale) {
		s.pauses(1, 2, 8)
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.good(2, 2, 120)
	}, judged{doubled: 1}},
	{"again, after the store forgot", func(s *tale) {
		s.good(1, 1, 10)
		s.strikes(strikeAmnesia, 50, 51)
		s.good(2, 2, 120)
	}, judged{explained: 1, illegal: true}},
	{"in flight, after an end that was forgotten", func(s *tale) {
		s.good(1, 1, 10)
		s.strikes(strikeAmnesia, 20, 21)
		s.op(2, opClaim, 2, 40, 41, saidInFlight, 0)
		s.good(2, 3, 120)
	}, judged{explained: 1, illegal: true}},
	{"again, by a claim that was sent before the store forgot the first", func(s *tale) {
		s.op(1, opClaim, 1, 10, 60, saidAcquired, 0)
		s.claims(2, 2, 12)
		s.runs(2, 14)
		s.strikes(strikeAmnesia, 20, 50)
		s.runs(1, 62)
		s.marks(1, 1, 66)
		s.acks(1, 68)
	}, judged{explained: 1, illegal: true}},
	{"again, by a claim that was sent before the store forgot it, and is run last", func(s *tale) {
		s.op(1, opClaim, 1, 10, 60, saidAcquired, 0)
		s.strikes(strikeAmnesia, 20, 21)
		s.op(2, opClaim, 2, 25, 58, saidAcquired, 0)
		s.runs(2, 59)
		s.runs(1, 61)
		s.marks(2, 2, 64)
		s.acks(2, 66)
	}, judged{explained: 1, illegal: true}},
	{"again, after the process got no processor", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.say(1, record{kind: stalled, arg: 200 * milli, at: 300})
		s.good(2, 2, 120)
	}, judged{explained: 1}},
	{"again, and the store forgot later", func(s *tale) {
		s.good(1, 1, 10)
		s.good(2, 2, 120)
		s.strikes(strikeAmnesia, 150, 151)
	}, judged{doubled: 1, illegal: true}},
	{"again, after a mark that was not answered during an outage", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.strikes(strikeOutage, 14, 60)
		s.op(1, opFinish, 1, 16, 50, saidUnknown, 0)
		s.good(2, 2, 120)
	}, judged{explained: 1}},
	{"again, and an outage of which the first knew nothing", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.strikes(strikeOutage, 14, 60)
		s.good(2, 2, 120)
	}, judged{doubled: 1}},
	{"a third time, with a reason for the first only", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.dies(1, 16)
		s.claims(2, 2, 120)
		s.runs(2, 122)
		s.good(3, 3, 240)
	}, judged{explained: 1, doubled: 1}},
	{"in flight, while a dead owner's lease lasts", func(s *tale) {
		s.claims(1, 1, 10)
		s.dies(1, 16)
		s.op(2, opClaim, 2, 60, 61, saidInFlight, 0)
		s.good(2, 3, 120)
	}, judged{}},
	{"in flight, long after its owner's death", func(s *tale) {
		s.claims(1, 1, 10)
		s.dies(1, 16)
		s.op(2, opClaim, 2, 400, 401, saidInFlight, 0)
		s.good(2, 3, 420)
	}, judged{stuck: 1}},
	{"in flight, by a claim of a dead process that a slow server has executed late", func(s *tale) {
		s.op(1, opClaim, 1, 10, 0, 0, 0)
		s.dies(1, 16)
		s.op(2, opClaim, 2, 12, 700, saidInFlight, 0)
		s.op(2, opClaim, 3, 750, 751, saidInFlight, 0)
		s.good(2, 4, 900)
	}, judged{}},
	{"in flight, long after the claim of a process that died before its answer", func(s *tale) {
		s.op(1, opClaim, 1, 10, 0, 0, 0)
		s.dies(1, 16)
		s.op(2, opClaim, 2, 17, 700, saidInFlight, 0)
		s.op(2, opClaim, 3, 750, 751, saidInFlight, 0)
		s.good(2, 4, 900)
	}, judged{stuck: 1}},
	{"in flight, after its owner has released it", func(s *tale) {
		s.claims(1, 1, 10)
		s.op(1, opRelease, 1, 12, 13, saidEnded, flagHeld|flagWritten)
		s.op(2, opClaim, 2, 300, 301, saidInFlight, 0)
		s.good(2, 3, 420)
	}, judged{stuck: 1, illegal: true}},
	{"in flight, by a claim that was executed after its release", func(s *tale) {
		s.op(1, opClaim, 1, 10, 20, saidUnknown, 0)
		s.op(1, opClaim, 1, 11, 20, saidUnknown, 0)
		s.op(1, opRelease, 1, 21, 22, saidEnded, flagHeld|flagWritten)
		s.op(2, opClaim, 2, 60, 61, saidInFlight, 0)
		s.good(2, 3, 420)
	}, judged{}},
	{"in flight, by a claim that was forgotten and asked again", func(s *tale) {
		s.op(2, opClaim, 2, 10, 12, saidInFlight, 0)
		s.op(1, opClaim, 1, 11, 300, saidDuplicate, 0)
		s.strikes(strikeAmnesia, 20, 40)
		s.good(2, 3, 200)
		s.acks(1, 301)
	}, judged{illegal: true}},
	{"in flight, by a claim that nobody has forgotten", func(s *tale) {
		s.op(2, opClaim, 2, 10, 12, saidInFlight, 0)
		s.op(1, opClaim, 1, 11, 300, saidDuplicate, 0)
		s.strikes(strikeOutage, 20, 40)
		s.good(2, 3, 200)
		s.acks(1, 301)
	}, judged{stuck: 1, illegal: true}},
	{"again, by a claim of while the clock was ahead", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.strikes(strikeClock, 20, 60)
		s.good(2, 2, 30)
		s.op(1, opFinish, 1, 50, 52, saidEnded, 0)
	}, judged{explained: 1, illegal: true}},
	{"again, by a claim that the next one overtook, as the clock went ahead", func(s *tale) {
		s.op(1, opClaim, 1, 10, 30, saidAcquired, 0)
		s.strikes(strikeClock, 5, 12)
		s.good(2, 2, 14)
		s.runs(1, 31)
		s.op(1, opFinish, 1, 35, 36, saidEnded, 0)
	}, judged{explained: 1, illegal: true}},
	{"again, by a claim after the next one, and the clock was ahead before", func(s *tale) {
		s.strikes(strikeClock, 5, 12)
		s.good(2, 2, 14)
		s.claims(1, 1, 30)
		s.runs(1, 32)
		s.op(1, opFinish, 1, 36, 37, saidEnded, 0)
	}, judged{doubled: 1, illegal: true}},
	{"again, by two claims at a time, and nothing has happened", func(s *tale) {
		s.op(1, opClaim, 1, 10, 30, saidAcquired, 0)
		s.good(2, 2, 14)
		s.runs(1, 31)
		s.op(1, opFinish, 1, 35, 36, saidEnded, 0)
	}, judged{doubled: 1, illegal: true}},
	{"again, and the clock was ahead later", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.op(1, opFinish, 1, 20, 22, saidEnded, 0)
		s.good(2, 2, 30)
		s.strikes(strikeClock, 60, 80)
	}, judged{doubled: 1, illegal: true}},
	{"again, although it was on record before the clock was ahead", func(s *tale) {
		s.good(1, 1, 10)
		s.strikes(strikeClock, 50, 51)
		s.good(2, 2, 120)
	}, judged{doubled: 1, illegal: true}},
	{"in flight, by a dead owner's claim of while the clock was ahead", func(s *tale) {
		s.strikes(strikeClock, 5, 15)
		s.claims(1, 1, 10)
		s.dies(1, 16)
		s.op(2, opClaim, 2, 400, 401, saidInFlight, 0)
		s.strikes(strikeClock, 450, 460)
		s.good(2, 3, 600)
	}, judged{}},
	{"in flight, long after the clock has come to stay", func(s *tale) {
		s.strikes(strikeClock, 5, 15)
		s.claims(1, 1, 10)
		s.dies(1, 16)
		s.op(2, opClaim, 2, 400, 401, saidInFlight, 0)
		s.good(2, 3, 600)
	}, judged{stuck: 1}},
	{"in flight by its own claim", func(s *tale) {
		s.op(1, opClaim, 1, 10, 11, saidUnknown, 0)
		s.op(1, opClaim, 1, 12, 13, saidInFlight, 0)
		s.good(1, 2, 120)
	}, judged{own: 1, stuck: 1, illegal: true}},
	{"a duplicate of nothing", func(s *tale) {
		s.op(1, opClaim, 1, 10, 11, saidDuplicate, 0)
		s.acks(1, 12)
		s.good(2, 2, 20)
	}, judged{lost: 1, illegal: true}},
	{"two owners", func(s *tale) {
		s.claims(1, 1, 10)
		s.claims(2, 2, 20)
		s.runs(1, 22)
		s.marks(1, 1, 26)
		s.acks(1, 28)
	}, judged{illegal: true}},
	{"an end that nobody owned", func(s *tale) {
		s.claims(1, 1, 10)
		s.op(2, opFinish, 2, 12, 13, saidEnded, flagHeld|flagWritten)
		s.runs(1, 14)
		s.acks(1, 20)
	}, judged{illegal: true}},
	{"an end that was late, and has landed", func(s *tale) {
		s.claims(1, 1, 10)
		s.claims(2, 2, 120)
		s.runs(1, 122)
		s.op(1, opFinish, 1, 126, 127, saidEnded, flagWritten|flagApplied)
		s.op(2, opRelease, 2, 130, 131, saidEnded, 0)
		s.acks(1, 128)
	}, judged{}},
	{"a duplicate of a transaction that may be committed", func(s *tale) {
		s.op(1, opMark, 0, 10, 11, saidUnknown, flagRan)
		s.op(2, opMark, 0, 20, 21, saidDuplicate, 0)
		s.runs(1, 22)
		s.acks(2, 30)
	}, judged{}},
	{"a duplicate of a transaction that has not come to its effect", func(s *tale) {
		s.op(1, opMark, 0, 10, 11, saidUnknown, 0)
		s.op(2, opMark, 0, 20, 21, saidDuplicate, 0)
		s.runs(1, 22)
		s.acks(2, 30)
	}, judged{illegal: true}},
	{"again, after a claim that was granted at its third sending", func(s *tale) {
		s.op(1, opClaim, 1, 10, 20, saidUnknown, 0)
		s.op(1, opClaim, 1, 30, 40, saidUnknown, 0)
		s.claims(1, 1, 60)
		s.runs(1, 65)
		s.good(2, 2, 180)
	}, judged{explained: 1}},
	{"again, after a claim that was granted at its second sending, soon", func(s *tale) {
		s.op(1, opClaim, 1, 10, 20, saidUnknown, 0)
		s.claims(1, 1, 30)
		s.runs(1, 35)
		s.good(2, 2, 180)
	}, judged{doubled: 1}},
	{"again, after an effect that came to its mark late", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.op(1, opFinish, 1, 50, 80, saidUnknown, 0)
		s.good(2, 2, 120)
	}, judged{explained: 1}},
	{"again, after a mark that was sent in time and not answered", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.op(1, opFinish, 1, 20, 80, saidUnknown, 0)
		s.good(2, 2, 120)
	}, judged{doubled: 1}},
	{"a lease beside the end of a late owner who was killed", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.pauses(1, 13, 200)
		s.op(1, opFinish, 1, 14, 201, saidUnknown, flagApplied)
		s.dies(1, 203)
		s.op(2, opClaim, 2, 190, 191, saidAcquired, 0)
		s.op(2, opClaim, 3, 205, 206, saidDuplicate, 0)
		s.op(2, opRenew, 2, 210, 211, saidEnded, flagHeld)
		s.runs(2, 212)
		s.op(2, opFinish, 2, 215, 216, saidEnded, flagHeld|flagWritten)
		s.op(2, opClaim, 4, 220, 221, saidDuplicate, 0)
		s.acks(2, 222)
	}, judged{explained: 1}},
	{"the same, of one who did not say that the effect has happened", func(s *tale) {
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.pauses(1, 13, 200)
		s.op(1, opFinish, 1, 14, 201, saidUnknown, 0)
		s.dies(1, 203)
		s.op(2, opClaim, 2, 190, 191, saidAcquired, 0)
		s.op(2, opClaim, 3, 205, 206, saidDuplicate, 0)
		s.runs(2, 212)
		s.marks(2, 2, 215)
		s.acks(2, 222)
	}, judged{explained: 1, illegal: true}},
	{"a claim past danger", func(s *tale) {
		s.claims(1, 1, 10)
		s.op(1, opRenew, 1, 12, 13, saidEnded, flagHeld|flagIrreversible)
		s.dies(1, 14)
		s.good(2, 2, 200)
	}, judged{illegal: true}},
}

// TestJudge gives histories to judge, and compares its results with the rows.
func TestJudge(t *testing.T) {
	for _, row := range judgeRows {
		t.Run(row.name, func(t *testing.T) {
			s := &tale{t, t.TempDir(), map[int]*ledger{}}
			row.tell(s)
			h := newHistory()
			h.lease, h.messages = 100*milli, 1
			h.allowed = []reason{byDeath, byPause, byStall, byAmnesia, byOutage, byClock}
			require.NoError(t, h.read(s.dir))
			v := judge(h)
			got := judged{lost: v.lost, doubled: v.doubled, stuck: v.stuck, own: v.selfDuplicates,
				illegal: v.linear == porcupine.Illegal}
			for _, n := range v.explained {
				got.explained += n
			}
			assert.Equal(t, row.want, got, "%v", v.problems)
		})
	}
}

// TestJudgeAllowed: a reason that the scenario's row does not allow does not count, and nothing
// explains an effect that is twice in a database.
func TestJudgeAllowed(t *testing.T) {
	tell := func(t *testing.T, h *history) *checkResult {
		s := &tale{t, t.TempDir(), map[int]*ledger{}}
		s.claims(1, 1, 10)
		s.runs(1, 12)
		s.dies(1, 16)
		s.good(2, 2, 120)
		h.lease, h.messages = 100*milli, 1
		require.NoError(t, h.read(s.dir))
		return judge(h)
	}
	h := newHistory()
	h.allowed = []reason{byPause}
	v := tell(t, h)
	assert.False(t, v.doubled != 1 || len(v.explained) != 0, "a death is no reason here: %+v", v)
	h = newHistory()
	h.allowed = []reason{byPause}
	h.pauses[1] = []span{{13 * milli, 15 * milli}}
	v = tell(t, h)
	assert.False(t, v.doubled != 0 || v.explained[string(byPause)] != 1,
		"who died had been stopped before, which is a reason: %+v", v)
	for rows, want := range []int{1, 0, 1} { // lost, once, twice
		h := newHistory()
		h.atomic, h.allowed, h.sink = true, []reason{byDeath}, map[[2]uint64]int{{2, 122}: rows}
		v := tell(t, h)
		assert.False(t, rows == 0 && v.lost == 0, "%d rows in the database: lost %d, doubled %d",
			rows, v.lost, v.doubled)
		assert.False(t, rows > 0 && v.doubled != want,
			"%d rows in the database: lost %d, doubled %d", rows, v.lost, v.doubled)
	}
}
