package owned_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
)

// TestJudgeReasons: each reason excuses only the runs that it caused.
func TestJudgeReasons(t *testing.T) {
	judgeRows(t, map[string]row{
		// Losses because a process was stopped.
		"stopped, and moved elsewhere": {story: func(s *script) {
			s.stopped(110, 500, 450)
		}, why: stopped},
		"stopped, and the other effect ended before": {story: func(s *script) {
			s.stopped(210, 600, 150)
		}, want: "without a reason"},
		"stopped, and the other effect came before the lease was over": {
			story: func(s *script) { s.stopped(110, 500, 340) }, want: "without a reason",
		},
		"stopped too shortly, and moved elsewhere": {story: func(s *script) {
			s.stopped(110, 300, 250)
		}, want: "without a reason"},
		"stopped for what a lease has left at least, and moved elsewhere": {
			story: func(s *script) { s.stopped(210, 409, 405) }, why: lapsed,
		},
		"stopped, and not moved": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.h.pauses = append(s.h.pauses, pause{1, 110 * ms, 500 * ms})
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 510})
			s.effect(effect{child: 2, key: key, epoch: 10, claimed: 450, acked: 460})
		}, want: "without a reason"},
		"stopped, and refused by its own process before another had the partition": {
			story: func(s *script) { s.givenUp(510, 600) }, why: stopped,
		},
		"stopped, and refused by its own process before the lease was over": {
			story: func(s *script) { s.givenUp(250, 600) }, want: "without a reason",
		},

		// Losses because a lease or claim lapsed.
		"a claim of the inner store, not renewed, and moved elsewhere": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, asked: true, acked: 800})
			s.effect(effect{child: 1, part: 3, key: key, epoch: 20, claimed: 250, acked: 260})
		}, why: lapsed},
		"a claim of the inner store, renewed, and moved elsewhere": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, asked: true, renewed: 180,
				acked: 800})
			s.effect(effect{child: 1, part: 3, key: key, epoch: 20, claimed: 250, acked: 260})
		}, want: "without a reason"},
		"a claim of the inner store, not renewed, refused before it could lapse": {
			story: func(s *script) {
				s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, asked: true,
					lost: 150})
				s.effect(effect{child: 1, part: 3, key: key, epoch: 20, claimed: 250, acked: 260})
			}, want: "without a reason"},
		"proven new, and the partition renewed": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.renew(1, 0, 10, 400)
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 800})
			s.effect(effect{child: 1, part: 3, key: key, epoch: 20, claimed: 650, acked: 660})
		}, want: "without a reason"},
		"proven new, and nothing known of the partition": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 800})
			s.effect(effect{child: 1, part: 3, key: key, epoch: 20, claimed: 650, acked: 660})
		}, want: "without a reason"},
		"proven new, and the partition renewed too late": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.renew(1, 0, 10, 300)
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 800})
			s.effect(effect{child: 1, part: 3, key: key, epoch: 20, claimed: 650, acked: 660})
		}, why: lapsed},
		"proven new, not renewed, and not moved": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 800})
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 650, acked: 660})
		}, want: "without a reason"},
		"more than was in flight, lapsed": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			for _, k := range []uint64{key, other, third} {
				s.effect(effect{child: 1, key: k, epoch: 10, claimed: 100, acked: 800})
				s.effect(effect{child: 2, part: 3, key: k, epoch: 20, claimed: 500, acked: 510})
			}
		}, want: "at most 2 were in flight"},
		"more than was claimed at once, lapsed": {story: func(s *script) {
			for _, k := range []uint64{key, other, third} {
				s.effect(effect{child: 1, key: k, epoch: 10, claimed: 100, asked: true, acked: 800})
				s.effect(effect{child: 2, part: 3, key: k, epoch: 20, claimed: 500, acked: 510})
			}
		}, want: "at most 2 were in flight"},

		// Losses because a process died.
		"refused, and killed long after": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, lost: 110})
			s.h.deaths[1] = 400 * ms
			s.effect(effect{child: 1001, key: key, epoch: 20, attempt: 2, claimed: 500, acked: 510})
		}, want: "without a reason"},
		"killed, and refused just then": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, lost: 401})
			s.h.deaths[1] = 400 * ms
			s.effect(effect{child: 1001, key: key, epoch: 20, attempt: 2, claimed: 500, acked: 510})
		}, why: died},

		// Marks that were refused, and written anyway: the key is a duplicate until its window is
		// over.
		"refused, and again after the window": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, lost: 110})
			s.effect(effect{child: 2, key: key, epoch: 20, claimed: 8103, acked: 8110})
		}, why: expired},
		"refused, and again just inside the window": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, lost: 110})
			s.effect(effect{child: 2, key: key, epoch: 20, claimed: 8090, acked: 8100})
		}, want: "without a reason"},

		// Partitions that were handed over.
		"released in good order, and run again by the next": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, lost: 900})
			s.release(1, 0, 10, 120)
			s.grant(2, 0, 20, 130)
			s.effect(effect{child: 2, key: key, epoch: 20, claimed: 140, acked: 150})
		}, want: "without a reason"},
		"released in good order, acquired again before that, and run again by the next": {
			story: func(s *script) {
				s.grant(1, 0, 10, 50)
				s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, lost: 900})
				s.grant(1, 0, 15, 110)
				s.release(1, 0, 15, 120)
				s.grant(2, 0, 20, 130)
				s.effect(effect{child: 2, key: key, epoch: 20, claimed: 140, acked: 150})
			}, want: "without a reason"},
		"released in good order, held on, and run again by the next": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, renewed: 190, acked: 300})
			s.release(1, 0, 10, 120)
			s.grant(2, 0, 20, 130)
			s.effect(effect{child: 2, key: key, epoch: 20, claimed: 250, acked: 260})
		}, want: "without a reason"},
		"released in good order, and run again after the claim had lapsed": {
			story: func(s *script) {
				s.grant(1, 0, 10, 50)
				s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, lost: 300})
				s.release(1, 0, 10, 120)
				s.grant(2, 0, 20, 130)
				s.effect(effect{child: 2, key: key, epoch: 20, claimed: 250, acked: 260})
			}, why: lapsed},
		"another epoch was released in good order": {story: func(s *script) {
			s.grant(1, 0, 5, 20)
			s.release(1, 0, 5, 30)
			s.grant(1, 0, 10, 50)
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, lost: 900})
			s.grant(2, 0, 20, 450)
			s.effect(effect{child: 2, key: key, epoch: 20, claimed: 500, acked: 510})
		}, why: superseded},
		"superseded by one that died before it could write that down": {story: func(s *script) {
			s.unwritten(450, 450, 0)
		}, why: superseded},
		"superseded by one that had asked when it was killed": {story: func(s *script) {
			s.unwritten(450, 200, 0)
		}, why: superseded},
		"an epoch that nobody had who died": {story: func(s *script) {
			s.unwritten(450, 2000, 0)
		}, want: "without a reason"},
		"an epoch that nobody had who died then": {story: func(s *script) {
			s.unwritten(450, 100, 0)
		}, want: "without a reason"},
		"an epoch that somebody had who died, after the mark was refused": {story: func(s *script) {
			s.unwritten(520, 450, 0)
		}, want: "without a reason"},
		"an epoch that the process had itself, and somebody died": {story: func(s *script) {
			s.unwritten(450, 450, 450)
		}, want: "without a reason"},
		"superseded, while the inner store had the claim": {story: func(s *script) {
			s.grant(1, 0, 10, 50)
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, asked: true, renewed: 440,
				lost: 900})
			s.grant(2, 0, 20, 450)
			s.effect(effect{child: 2, key: key, epoch: 20, claimed: 500, acked: 510})
		}, want: "without a reason"},
	})
}

// TestStoryTellsWhoHadThePartition: the story names the owners at the time of each effect of the
// key, not only of the first.
func TestStoryTellsWhoHadThePartition(t *testing.T) {
	s := newScript(t)
	s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 110})
	s.grant(2, 0, 20, 7000)
	s.grant(3, 0, 30, 19000)
	s.effect(effect{child: 3, key: key, epoch: 30, claimed: 20000, acked: 20010})
	_, h := s.judge()
	text := h.story(key)
	assert.Contains(t, text, "process 3 was given {0 0}")
	assert.NotContains(t, text, "process 2 was given")
}

// unwritten has process 1 acquire a partition that it had before, and learn of an epoch in
// between, which was granted at given. Process 3 dies at death. If own is not 0, that epoch was
// granted to process 1 itself, at own.
func (s *script) unwritten(given, death, own int64) {
	epoch := func(at int64) uint64 { return uint64(at) * 1024 }
	s.h.deaths[3] = death * ms
	s.grant(1, 0, epoch(50), 50)
	s.effect(effect{child: 1, key: key, epoch: epoch(50), claimed: 100, lost: 500})
	if own > 0 {
		s.grant(1, 0, epoch(own), own)
	}
	s.seq[partition{0, 0}] += 2
	s.write(1, record{kind: granted, epoch: epoch(900), key: epoch(given),
		seq:  s.seq[partition{0, 0}],
		from: 900 * ms, at: 901 * ms})
	s.effect(effect{child: 1, key: key, epoch: epoch(900), attempt: 2, claimed: 910, acked: 920})
}

// stopped stops process 1 from one time to another; process 2 runs the key in another partition.
func (s *script) stopped(from, to, other int64) {
	s.grant(1, 0, 10, 50)
	s.renew(1, 0, 10, 100)
	s.h.pauses = append(s.h.pauses, pause{1, from * ms, to * ms})
	s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 610})
	s.effect(effect{child: 2, part: 3, key: key, epoch: 20, claimed: other, acked: other + 10})
}

// givenUp has a process stopped until its lease is over, and refuse its own mark at refused. Then
// another process is given the partition and runs the key.
func (s *script) givenUp(refused, given int64) {
	s.grant(1, 0, 10, 50)
	s.renew(1, 0, 10, 100)
	s.h.pauses = append(s.h.pauses, pause{1, 110 * ms, 500 * ms})
	s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, lost: refused})
	s.grant(2, 0, 20, given)
	s.effect(effect{child: 2, key: key, epoch: 20, attempt: 2, claimed: given + 50,
		acked: given + 60})
}

// TestJudgeAttempts: an event counts only if it can have used up an attempt of the key.
func TestJudgeAttempts(t *testing.T) {
	judgeRows(t, map[string]row{
		"kills, and an attempt was cut short by another's death": {story: func(s *script) {
			s.sends(0, 50)
			s.grant(77, 0, 5, 60)
			s.h.deaths[77] = 90 * ms
			s.kills(key, 2, true)
		}, why: died},
		"kills, and somebody died before it was sent": {story: func(s *script) {
			s.grant(77, 0, 5, 60)
			s.h.deaths[77] = 90 * ms
			s.sends(0, 95)
			s.kills(key, 2, true)
		}, want: "given up after 2 attempts"},
		"kills, and somebody died who had released its partition": {story: func(s *script) {
			s.sends(0, 50)
			s.grant(77, 0, 5, 60)
			s.release(77, 0, 5, 70)
			s.h.deaths[77] = 90 * ms
			s.kills(key, 2, true)
		}, want: "given up after 2 attempts"},
		"kills, and two died who had lost its partition to others that released it": {
			story: func(s *script) {
				s.grant(77, 0, 5, 20)
				s.grant(78, 0, 6, 30)
				s.release(78, 0, 6, 40)
				s.sends(0, 50)
				s.h.deaths[77], s.h.deaths[78] = 90*ms, 91*ms
				s.kills(key, 2, true)
			}, want: "given up after 2 attempts"},
		"kills, and somebody stood still who had released its partition": {story: func(s *script) {
			s.sends(0, 50)
			s.grant(77, 0, 5, 60)
			s.release(77, 0, 5, 70)
			s.h.pauses = append(s.h.pauses, pause{77, 80 * ms, 900 * ms})
			s.kills(key, 2, true)
		}, want: "given up after 2 attempts"},
		"kills, and somebody lost its partition who had stood still": {story: func(s *script) {
			s.sends(0, 40)
			s.grant(77, 0, 5, 45)
			s.grant(78, 0, 6, 90)
			s.release(78, 0, 6, 95)
			s.kills(key, 2, true)
		}, why: died},
		"kills, and somebody else died elsewhere": {story: func(s *script) {
			s.sends(0, 50)
			s.grant(77, 5, 5, 60)
			s.h.deaths[77] = 90 * ms
			s.kills(key, 2, true)
		}, want: "given up after 2 attempts"},
		"kills, and has failed before": {story: func(s *script) {
			s.write(9, record{kind: failed, key: key, at: 90 * ms})
			s.kills(key, 2, true)
		}, why: died},
		"dead, for others have killed it three times": {story: func(s *script) {
			for n := range 3 {
				s.effect(effect{child: 10 + n, key: key, epoch: uint64(10 + n),
					attempt: uint32(n + 1), claimed: int64(100 + 200*n), cut: true})
				s.h.deaths[10+n] = int64(150+200*n) * ms
			}
			s.dead(4000)
		}, why: died},
		"dead, for what three claims were told was not learnt": {story: func(s *script) {
			for n := range 3 {
				s.write(1, record{kind: answered, key: key, seq: uint64(dedup.Unknown),
					at: int64(100+n) * ms})
			}
			s.dead(4000)
		}},
		"dead before it ever ran, for three that had its partition died": {story: func(s *script) {
			s.died(50, 0, 0, 0)
		}},
		"dead before it ever ran, and one of three died elsewhere": {story: func(s *script) {
			s.died(50, 0, 0, 1)
		}, want: "never killed anybody"},
		"dead before it ever ran, and one of three died before it was sent": {
			story: func(s *script) { s.died(200, 0, 0, 0) }, want: "never killed anybody",
		},
		"dead without reason": {story: func(s *script) {
			s.effect(effect{child: 1, key: key, epoch: 10, claimed: 100, acked: 110})
			s.dead(120)
		}, want: "never killed anybody"},
		"dead before it ever ran, and three died after that": {story: func(s *script) {
			s.sends(0, 50)
			s.dead(100)
			s.died(60, 0, 0, 0)
		}, want: "never killed anybody"},
	})
}

// died has three processes die, one after another, with a partition each.
func (s *script) died(sent int64, parts ...uint16) {
	s.sends(0, sent)
	for n, part := range parts {
		s.grant(10+n, part, uint64(10+n), int64(60+200*n))
		s.h.deaths[10+n] = int64(150+200*n) * ms
	}
	s.write(13, record{kind: answered, key: key, attempt: 4, seq: 1, from: 2999 * ms,
		at: 3000 * ms})
	s.dead(4000)
}

// dead puts the key of the rows on the dead list.
func (s *script) dead(at int64) {
	s.write(50, record{kind: deadLetter, key: key, attempt: 4, at: at * ms})
}
