package owned_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script writes a history by hand, through the files that processes write. Its clock is in ms.
type script struct {
	t   *testing.T
	dir string
	h   *history
	of  map[int]*ledger
	seq map[partition]uint64
}

const ms = int64(time.Millisecond)

func newScript(t *testing.T) *script {
	return &script{
		t: t, dir: t.TempDir(), of: map[int]*ledger{}, seq: map[partition]uint64{},
		h: &history{
			window: []time.Duration{8 * time.Second, time.Hour}, lease: 300 * time.Millisecond,
			claim: 100 * time.Millisecond, batch: 2, cap: 3,
			poison: map[uint64]bool{}, deaths: map[int]int64{},
		},
	}
}

func (s *script) write(child int, all ...record) {
	if s.of[child] == nil {
		l, err := openLedger(s.dir, child)
		require.NoError(s.t, err)
		s.t.Cleanup(func() { _ = l.file.Close() })
		s.of[child] = l
	}
	s.of[child].write(all...)
}

// grant gives partition part to a process, at a time.
func (s *script) grant(child int, part uint16, epoch uint64, at int64) {
	where := partition{0, part}
	s.seq[where]++
	s.write(child, record{kind: granted, part: part, epoch: epoch, seq: s.seq[where], from: at * ms,
		at: (at + 1) * ms})
}

// renew extends the lease of a partition at a time.
func (s *script) renew(child int, part uint16, epoch uint64, at int64) {
	where := partition{0, part}
	s.seq[where]++
	s.write(child, record{kind: wrote, part: part, epoch: epoch, attempt: 1, seq: s.seq[where],
		from: at * ms})
}

// unjudged is a source that no row judges.
const unjudged = 9

// release gives a partition up in good order.
func (s *script) release(child int, part uint16, epoch uint64, at int64) {
	s.write(child, record{kind: released, part: part, epoch: epoch, from: at * ms})
}

// sends sends the key of the rows to a partition.
func (s *script) sends(part uint16, at int64) {
	s.h.sendings = append(s.h.sendings, sending{key, partition{0, part}, at * ms})
}

func (s *script) turn(child int, part uint16, epoch uint64) {
	where := partition{0, part}
	s.seq[where]++
	s.write(child, record{kind: wrote, part: part, epoch: epoch, seq: s.seq[where], at: 1})
}

// effect begins at claimed, or at begun, and ends. Its mark is answered at acked, 1 ms after it
// was sent; without acked no mark is known.
type effect struct {
	child   int
	part    uint16
	key     uint64
	epoch   uint64
	attempt uint32
	claimed int64
	begun   int64 // default 1 ms after claimed
	cut     bool  // its end is not on record
	acked   int64
	lost    int64
	asked   bool  // the inner store was asked and has the claim
	renewed int64 // when it was renewed
}

func (s *script) effect(e effect) {
	if e.begun == 0 {
		e.begun = e.claimed + 1
	}
	if s.of[e.child] == nil {
		s.write(e.child)
	}
	n := s.of[e.child].runs.Add(1)
	s.write(e.child, record{kind: runBegun, part: e.part, key: e.key, epoch: e.epoch,
		attempt: max(e.attempt, 1), seq: n, proven: !e.asked, from: e.claimed * ms,
		at: e.begun * ms})
	if !e.cut {
		s.write(e.child, record{kind: runEnded, seq: n, at: (e.begun + 1) * ms})
	}
	if e.renewed > 0 {
		s.write(e.child, record{kind: renewed, seq: n, from: e.renewed * ms})
	}
	if e.acked > 0 {
		s.write(e.child, record{kind: wrote, source: unjudged, key: 1})
		s.write(e.child, record{kind: markAcked, seq: n, from: (e.acked - 1) * ms,
			at: e.acked * ms})
	}
	if e.lost > 0 {
		s.write(e.child, record{kind: markLost, seq: n, at: e.lost * ms})
	}
}

func (s *script) judge() (*checkResult, *history) {
	s.t.Helper()
	require.NoError(s.t, s.h.read(s.dir))
	return judge(s.h), s.h
}

// row is a history, and the expected verdict.
type row struct {
	story func(s *script)
	want  string // part of the first problem; none when empty
	why   string // the reason that excused a second effect
}

const key, other, third = 7, 8, 9

// TestJudge: each red history has exactly one problem, and each exception passes.
func TestJudge(t *testing.T) {
	judgeRows(t, map[string]row{
		"one effect, and its mark was not seen": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100})
			s.write(1, record{kind: markAcked, seq: 1, from: 109 * ms, at: 110 * ms})
		}, want: "1 marks were answered, and 0 seen"},
		"one effect, marked": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 110})
			s.turn(1, 0, 10)
		}},
		"no effect": {story: func(*script) {}, want: "7 is lost"},
		"an effect that did not end": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, cut: true})
		}, want: "7 is lost"},
		"skipped before its effect": {story: func(s *script) {
			s.write(1, record{kind: duplicate, key: key, at: 90 * ms})
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 110})
		}, want: "before any effect"},
		"skipped after its effect": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 110})
			s.write(1, record{kind: duplicate, key: key, at: 120 * ms})
		}},
		"twice, for nothing": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100})
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 200, acked: 210})
		}, want: "without a reason"},
		"twice, after an answered mark": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 110})
			s.h.deaths[1] = 120 * ms
			s.grant(2, 0, 20, 150)
			s.effect(effect{child: 2, key: key, epoch: 20, claimed: 200, acked: 210})
		}, want: "without a reason"},
		"again after the window": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 110})
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 8200, acked: 8210})
		}, why: expired},
		"again just inside the window": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 110})
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 8100, acked: 8110})
		}, want: "without a reason"},
		"killed before the mark": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100})
			s.h.deaths[1] = 120 * ms
			s.effect(effect{child: 1001, key: key, epoch: 20, attempt: 2, claimed: 500, acked: 510})
		}, why: died},
		"killed only after the second effect began": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100})
			s.effect(effect{child: 2, key: key, epoch: 10, claimed: 200, acked: 210})
			s.h.deaths[1] = 300 * ms
		}, want: "without a reason"},
		"more than was in flight, killed": {story: func(s *script) {
			for _, k := range []uint64{key, other, third} {
				s.effect(effect{child: 1, key: k, epoch: 10, claimed: 100})
				s.effect(effect{child: 2, key: k, epoch: 20, claimed: 500, acked: 510})
			}
			s.h.deaths[1] = 120 * ms
		}, want: "at most 2 were in flight"},
		"as many as were in flight, killed": {story: func(s *script) {
			for _, k := range []uint64{key, other} {
				s.effect(effect{child: 1, key: k, epoch: 10, claimed: 100})
				s.effect(effect{child: 2, key: k, epoch: 20, claimed: 500, acked: 510})
			}
			s.h.deaths[1] = 120 * ms
		}, why: died},
		"superseded before its mark": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, lost: 900})
			s.grant(2, 0, 20, 450)
			s.effect(effect{child: 2, key: key, epoch: 20, claimed: 500, acked: 510})
		}, why: superseded},
		"superseded, and the old owner runs it when it wakes": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.grant(2, 0, 20, 450)
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, begun: 800, lost: 900})
			s.effect(effect{child: 2, key: key, epoch: 20, claimed: 500, acked: 510})
		}, why: superseded},
		"superseded after its mark": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 510})
			s.grant(2, 0, 20, 520)
			s.effect(effect{child: 2, key: key, epoch: 20, claimed: 505, begun: 530, acked: 540})
		}, want: "without a reason"},
		"the old owner claims after the new one": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.grant(2, 0, 20, 450)
			s.effect(effect{child: 2, key: key, epoch: 20, claimed: 500})
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 600, acked: 610})
		}, want: "without a reason"},
		"its own new epoch is no reason": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100})
			s.grant(1, 0, 20, 450)
			s.effect(effect{child: 1, key: key, epoch: 20, claimed: 500, acked: 510})
		}, want: "without a reason"},
		"more than was in flight, superseded": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			for _, k := range []uint64{key, other, third} {
				s.effect(effect{child: 1, key: k, epoch: 10, claimed: 100, lost: 900})
				s.effect(effect{child: 2, key: k, epoch: 20, claimed: 500, acked: 510})
			}
			s.grant(2, 0, 20, 450)
		}, want: "at most 2 were in flight"},
		"written under an old epoch": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 110})
			s.turn(1, 0, 10)
			s.grant(2, 0, 20, 450)
			s.turn(1, 0, 10)
		}, want: "under epoch 10, and epoch 20 had been given"},
		"written under an old epoch of another partition": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 110})
			s.grant(1, 0, 10, 50)
			s.grant(2, 1, 20, 60)
			s.turn(1, 0, 10)
			s.turn(2, 1, 20)
		}},
		"kills as often as it may": {story: func(s *script) { s.kills(key, 3, true) }, why: died},
		"kills too often": {story: func(s *script) {
			s.kills(key, 4, true)
		}, want: "killed 4 times"},
		"kills, given up too early": {
			story: func(s *script) { s.kills(key, 2, true) }, want: "given up after 2 attempts",
		},
		"kills, and is not given up": {story: func(s *script) {
			s.kills(key, 3, false)
		}, want: "is not on the dead list"},
	})
}

func judgeRows(t *testing.T, rows map[string]row) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.h.sent = []uint64{key}
			row.story(s)
			v, _ := s.judge()
			switch {
			case row.want == "" && !v.ok():
				t.Errorf("red: %q", v.problems)
			case row.want != "" &&
				(v.ok() || !strings.Contains(strings.Join(v.problems, "\n"), row.want)):
				t.Errorf("problems %q, want %q", v.problems, row.want)
			}
			assert.False(t, row.why != "" && v.explained[row.why] == 0, "explained %v, want %q",
				v.explained, row.why)
			assert.False(t, row.why == "" && row.want == "" && len(v.explained) > 0,
				"explained %v, want %q", v.explained, row.why)
		})
	}
}

// kills has a key kill several processes, one after another.
func (s *script) kills(key uint64, times uint32, dead bool) {
	s.h.poison[key] = true
	for n := range times {
		at := 100 + 500*int64(n)
		s.effect(effect{child: int(10 + n), key: key, epoch: uint64(10 + n), attempt: n + 1,
			claimed: at, cut: true})
		s.write(int(10+n), record{kind: dying, at: (at + 2) * ms})
	}
	if dead {
		s.write(50, record{kind: deadLetter, key: key, attempt: times + 1, at: 4000 * ms})
	}
}

// TestCounts: a run in which too little happened is red.
func TestCounts(t *testing.T) {
	quota := counts{kills: 8, handovers: 12, stops: 1, restored: 1, raised: 1, proven: 100,
		maybe: 10, unknown: 10, marks: 100, saved: 1, loaded: 1}
	assert.Empty(t, quota.short(&quota), "missing from what is enough")
	for name, less := range map[string]func(c *counts){
		"kills": func(c *counts) {
			c.kills--
		}, "handovers": func(c *counts) { c.handovers-- }, "stops": func(c *counts) { c.stops-- },
		"snapshots restored": func(c *counts) {
			c.restored--
		}, "raised counts": func(c *counts) { c.raised-- },
		"proven new": func(c *counts) {
			c.proven--
		}, "maybe": func(c *counts) { c.maybe-- }, "unknown": func(c *counts) { c.unknown-- },
		"effects while their partition was released": func(c *counts) {
			c.running--
		}, "marks seen": func(c *counts) { c.marks-- },
		"snapshots saved": func(c *counts) {
			c.saved--
		}, "snapshots loaded": func(c *counts) { c.loaded-- },
	} {
		have := quota
		less(&have)
		missing := have.short(&quota)
		if assert.Len(t, missing, 1, "one less") {
			assert.Contains(t, missing[0], name, "one less")
		}
	}
}

// TestHandoversAreCounted: a partition that goes from process to process counts, and one that
// its own process acquires again does not.
func TestHandoversAreCounted(t *testing.T) {
	s := newScript(t)
	for i, child := range []int{1, 1, 2, 1, 1} {
		s.grant(child, 0, uint64(i), int64(i))
	}
	s.grant(3, 1, 1, 1)
	s.write(1, record{kind: verdicts, key: 5, epoch: 4, seq: 3}, record{kind: verdicts, key: 1})
	_, h := s.judge()
	assert.False(t,
		h.counts.handovers != 2 || h.counts.proven != 6 || h.counts.maybe != 4 ||
			h.counts.unknown != 3, "%+v; want 2 handovers, 6 new, 4 maybe, 3 unknown", h.counts)
}

// TestLedgerKeepsRecords: every written record is read.
func TestLedgerKeepsRecords(t *testing.T) {
	r := record{kind: wrote, source: 1, part: 2, attempt: 3, key: 1 << 60, epoch: 5, seq: 6,
		from: -7, at: 8}
	b := r.append(nil)
	assert.Len(t, b, recordSize, "bytes")
	assert.Equal(t, r, readRecord(b), "bytes")
}
