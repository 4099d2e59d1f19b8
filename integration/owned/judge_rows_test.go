package owned_test

import (
	"strings"
	"testing"
	"time"
)

// script writes a history by hand, through the files that processes write. Its clock is in ms.
type script struct {
	t   *testing.T
	dir string
	h   *history
	of  map[int]*ledger
	seq map[place]uint64
}

const ms = int64(time.Millisecond)

func newScript(t *testing.T) *script {
	return &script{
		t: t, dir: t.TempDir(), of: map[int]*ledger{}, seq: map[place]uint64{},
		h: &history{
			window: []time.Duration{8 * time.Second, time.Hour}, lease: 300 * time.Millisecond, claim: 500 * time.Millisecond, batch: 2, cap: 3,
			poison: map[uint64]bool{}, deaths: map[int]int64{},
		},
	}
}

func (s *script) write(child int, all ...record) {
	if s.of[child] == nil {
		l, err := openLedger(s.dir, child)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = l.file.Close() })
		s.of[child] = l
	}
	s.of[child].write(all...)
}

// grant gives partition 0 to a process, at a time.
func (s *script) grant(child int, part uint16, epoch uint64, at int64) {
	where := place{0, part}
	s.seq[where]++
	s.write(child, record{kind: granted, part: part, epoch: epoch, seq: s.seq[where], from: at * ms, at: (at + 1) * ms})
}

func (s *script) turn(child int, part uint16, epoch uint64) {
	where := place{0, part}
	s.seq[where]++
	s.write(child, record{kind: wrote, part: part, epoch: epoch, seq: s.seq[where], at: 1})
}

// effect begins at a time, and ends; unless it is marked a ms later, nothing is known of that.
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
}

func (s *script) effect(e effect) {
	if e.begun == 0 {
		e.begun = e.claimed + 1
	}
	if s.of[e.child] == nil {
		s.write(e.child)
	}
	n := s.of[e.child].runs.Add(1)
	s.write(e.child, record{kind: runBegun, part: e.part, key: e.key, epoch: e.epoch, attempt: max(e.attempt, 1), seq: n, from: e.claimed * ms, at: e.begun * ms})
	if !e.cut {
		s.write(e.child, record{kind: runEnded, seq: n, at: (e.begun + 1) * ms})
	}
	if e.acked > 0 {
		s.write(e.child, record{kind: markAcked, seq: n, from: (e.acked - 1) * ms, at: e.acked * ms})
	}
	if e.lost > 0 {
		s.write(e.child, record{kind: markLost, seq: n, at: e.lost * ms})
	}
}

func (s *script) judge() (*verdict, *history) {
	s.t.Helper()
	if err := s.h.read(s.dir); err != nil {
		s.t.Fatal(err)
	}
	return judge(s.h), s.h
}

// TestJudge: what the checker calls red, it calls red for one thing; and each exception it lets pass.
func TestJudge(t *testing.T) {
	const key, other, third = 7, 8, 9
	for name, row := range map[string]struct {
		story func(s *script)
		want  string // part of the first problem; none when empty
		why   string // the reason that excused a second effect
	}{
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
		"stopped, and moved elsewhere": {story: func(s *script) {
			s.h.pauses = append(s.h.pauses, pause{1, 110 * ms, 500 * ms})
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 510})
			s.effect(effect{child: 2, part: 3, key: key, epoch: 20, claimed: 450, acked: 460})
		}, why: stopped},
		"stopped, and not moved": {story: func(s *script) {
			s.h.pauses = append(s.h.pauses, pause{1, 110 * ms, 500 * ms})
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 510})
			s.effect(effect{child: 2, key: key, epoch: 10, claimed: 450, acked: 460})
		}, want: "without a reason"},
		"stopped too shortly, and moved elsewhere": {story: func(s *script) {
			s.h.pauses = append(s.h.pauses, pause{1, 110 * ms, 200 * ms})
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 510})
			s.effect(effect{child: 2, part: 3, key: key, epoch: 20, claimed: 450, acked: 460})
		}, want: "without a reason"},
		"not renewed, and moved elsewhere": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 800})
			s.effect(effect{child: 1, part: 3, key: key, epoch: 20, claimed: 650, acked: 660})
		}, why: lapsed},
		"not renewed, and not moved": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 800})
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 650, acked: 660})
		}, want: "without a reason"},
		"more than was in flight, superseded": {story: func(s *script) {
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
		"kills too often":          {story: func(s *script) { s.kills(key, 4, true) }, want: "killed 4 times"},
		"kills, given up too early": {
			story: func(s *script) { s.kills(key, 2, true) }, want: "given up after 2 attempts",
		},
		"kills, and an attempt was cut short by another's death": {story: func(s *script) {
			s.grant(77, 0, 5, 60)
			s.h.deaths[77] = 150 * ms
			s.kills(key, 2, true)
		}, why: died},
		"kills, and is not given up": {story: func(s *script) { s.kills(key, 3, false) }, want: "is not on the dead list"},
		"kills, given up too early, and somebody else died elsewhere": {story: func(s *script) {
			s.grant(77, 5, 5, 60)
			s.h.deaths[77] = 150 * ms
			s.kills(key, 2, true)
		}, want: "given up after 2 attempts"},
		"dead, for others have killed it three times": {story: func(s *script) {
			for n := range 3 {
				s.effect(effect{child: 10 + n, key: key, epoch: uint64(10 + n), attempt: uint32(n + 1), claimed: int64(100 + 200*n), cut: true})
				s.h.deaths[10+n] = int64(150+200*n) * ms
			}
			s.write(50, record{kind: deadLetter, key: key, attempt: 4, at: 4000 * ms})
		}, why: died},
		"dead, for what three claims were told was not learnt": {story: func(s *script) {
			for n := range 3 {
				s.write(1, record{kind: answered, key: key, at: int64(100+n) * ms})
			}
			s.write(1, record{kind: deadLetter, key: key, attempt: 4, at: 4000 * ms})
		}},
		"dead before it ever ran, for three that had its partition died": {story: func(s *script) {
			for n := range 3 {
				s.grant(10+n, 0, uint64(10+n), int64(60+n))
				s.h.deaths[10+n] = int64(150+200*n) * ms
			}
			s.write(13, record{kind: answered, key: key, attempt: 4, seq: 1, at: 3000 * ms})
			s.write(13, record{kind: deadLetter, key: key, attempt: 4, at: 4000 * ms})
		}},
		"dead before it ever ran, and two that had its partition died": {story: func(s *script) {
			for n := range 3 {
				s.grant(10+n, uint16(n/2), uint64(10+n), int64(60+n))
				s.h.deaths[10+n] = int64(150+200*n) * ms
			}
			s.write(13, record{kind: answered, key: key, attempt: 4, seq: 1, at: 3000 * ms})
			s.write(13, record{kind: deadLetter, key: key, attempt: 4, at: 4000 * ms})
		}, want: "never killed anybody"},
		"dead without reason": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 110})
			s.write(1, record{kind: deadLetter, key: key, attempt: 4, at: 120 * ms})
		}, want: "never killed anybody"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.h.sent = []uint64{key}
			row.story(s)
			v, _ := s.judge()
			switch {
			case row.want == "" && !v.ok():
				t.Errorf("red: %q", v.problems)
			case row.want != "" && (v.ok() || !strings.Contains(strings.Join(v.problems, "\n"), row.want)):
				t.Errorf("problems %q, want %q", v.problems, row.want)
			}
			if row.why != "" && v.explained[row.why] == 0 || row.why == "" && row.want == "" && len(v.explained) > 0 {
				t.Errorf("explained %v, want %q", v.explained, row.why)
			}
		})
	}
}

// kills has a key kill as many processes, one after another.
func (s *script) kills(key uint64, times uint32, dead bool) {
	s.h.poison[key] = true
	for n := range times {
		at := 100 + 500*int64(n)
		s.effect(effect{child: int(10 + n), key: key, epoch: uint64(10 + n), attempt: n + 1, claimed: at, cut: true})
		s.write(int(10+n), record{kind: dying, at: (at + 2) * ms})
	}
	if dead {
		s.write(50, record{kind: deadLetter, key: key, attempt: times + 1, at: 4000 * ms})
	}
}

// TestCounts: a run in which too little happened is red.
func TestCounts(t *testing.T) {
	quota := counts{kills: 8, handovers: 12, stops: 1, restored: 1, raised: 1, proven: 100, maybe: 10, unknown: 10, marks: 100, saved: 1, loaded: 1}
	if missing := quota.short(&quota); len(missing) > 0 {
		t.Errorf("%q is missing from what is enough", missing)
	}
	for name, less := range map[string]func(c *counts){
		"kills": func(c *counts) { c.kills-- }, "handovers": func(c *counts) { c.handovers-- }, "stops": func(c *counts) { c.stops-- },
		"snapshots restored": func(c *counts) { c.restored-- }, "raised counts": func(c *counts) { c.raised-- },
		"proven new": func(c *counts) { c.proven-- }, "maybe": func(c *counts) { c.maybe-- }, "unknown": func(c *counts) { c.unknown-- },
		"marks seen":      func(c *counts) { c.marks-- },
		"snapshots saved": func(c *counts) { c.saved-- }, "snapshots loaded": func(c *counts) { c.loaded-- },
	} {
		have := quota
		less(&have)
		if missing := have.short(&quota); len(missing) != 1 || !strings.Contains(missing[0], name) {
			t.Errorf("one less of %s: %q", name, missing)
		}
	}
}

// TestHandoversAreCounted: what goes from process to process, and not what one acquires again.
func TestHandoversAreCounted(t *testing.T) {
	s := newScript(t)
	for i, child := range []int{1, 1, 2, 1, 1} {
		s.grant(child, 0, uint64(i), int64(i))
	}
	s.grant(3, 1, 1, 1)
	s.write(1, record{kind: verdicts, key: 5, epoch: 4, seq: 3}, record{kind: verdicts, key: 1})
	if _, h := s.judge(); h.counts.handovers != 2 || h.counts.proven != 6 || h.counts.maybe != 4 || h.counts.unknown != 3 {
		t.Errorf("%+v; want 2 handovers, 6 new, 4 maybe, 3 unknown", h.counts)
	}
}

// TestLedgerKeepsRecords: what is written is read.
func TestLedgerKeepsRecords(t *testing.T) {
	r := record{kind: wrote, source: 1, part: 2, attempt: 3, key: 1 << 60, epoch: 5, seq: 6, from: -7, at: 8}
	b := r.append(nil)
	if len(b) != recordSize || readRecord(b) != r {
		t.Errorf("%d bytes, %+v", len(b), readRecord(b))
	}
}
