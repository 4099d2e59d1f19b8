package owned_test

import (
	"cmp"
	"slices"
	"time"
)

// partition names a partition of a source.
type partition struct {
	source uint8
	part   uint16
}

// run is one effect of a key.
type run struct {
	key       uint64
	child     int
	partition partition
	epoch     uint64
	attempt   uint32
	// a filter called the key new, and only the partition's store has the claim
	proven  bool
	claimed int64 // the claim was sent
	renewed int64 // its last renewal; 0: never
	begun   int64
	ended   int64 // 0: unknown
	sent    int64 // the mark
	acked   int64 // 0: never
	lost    int64 // the mark was refused, or given up; 0: unknown
}

// over is the time at which the mark of the run was answered, refused or given up.
func (r *run) over() int64 {
	return cmp.Or(r.acked, r.lost, never)
}

// grant is one grant of a partition to a process.
type grant struct {
	child      int
	epoch, seq uint64
	before     uint64 // the epoch that Redis had before; 0: unknown
	sent, at   int64
}

// write is a turn that Redis accepted.
type write struct {
	child      int
	epoch, seq uint64
	sent       int64
	renewed    bool // the turn also renewed the lease
}

// span is one epoch of a partition.
type span struct {
	partition
	epoch uint64
}

// sending is a key that is sent to a partition.
type sending struct {
	key uint64
	partition
	at int64
}

// skip is a message that was skipped as a duplicate.
type skip struct {
	key uint64
	at  int64
}

// answer is the answer to a claim of one message.
type answer struct {
	key       uint64
	child     int
	partition partition
	epoch     uint64
	attempt   uint32
	outcome   uint64 // driver.Outcome
	sent      int64
	at        int64
}

// deadMessage is a message on the dead list.
type deadMessage struct {
	key     uint64
	attempt uint32
	at      int64
}

// pause is a time for which a process was stopped.
type pause struct {
	child    int
	from, to int64
}

// counts are the numbers that must be large enough for a run to prove something.
type counts struct {
	kills, handovers, stops, restored, raised int
	saved, loaded                             int // snapshots
	proven, maybe, unknown                    uint64
	saturated                                 uint64 // of the unknown, from full filters
	marks                                     uint64 // in the turns that Redis accepted
	running                                   int    // effects while their partition was released
}

// history is everything that happened: the records of the processes, and the faults that hit
// them.
type history struct {
	window   []time.Duration // by source
	lease    time.Duration   // of a partition, and of a claim
	claim    time.Duration
	batch    int // keys in flight of one partition of one process
	cap      uint32
	sent     []uint64 // the keys
	sendings []sending
	poison   map[uint64]bool
	// the time of a process's death, taken before the signal was sent
	deaths       map[int]int64
	killed       int // how many of them the conductor killed
	pauses       []pause
	runs         []run
	skips        []skip
	deadMessages []deadMessage
	answers      []answer
	grants       map[partition][]grant
	writes       map[partition][]write
	refused      map[partition]int
	heard        map[span]int64 // when the last renewal of the lease was sent
	orderly      map[span]int64 // when it was released in good order
	failed       map[uint64][]int64
	refusals     []refusal
	counts       counts
}

// read adds the records of the processes.
func (h *history) read(dir string) error {
	h.grants, h.writes = map[partition][]grant{}, map[partition][]write{}
	h.refused = map[partition]int{}
	h.heard, h.orderly, h.failed = map[span]int64{}, map[span]int64{}, map[uint64][]int64{}
	if h.deaths == nil {
		h.deaths = map[int]int64{}
	}
	type number struct {
		child int
		run   uint64
	}
	at := map[number]int{}
	var err error
	if h.refusals, err = readRefusals(dir); err != nil {
		return err
	}
	err = readLedgers(dir, func(child int, r record) {
		where := partition{r.source, r.part}
		of := func() *run { return &h.runs[at[number{child, r.seq}]] }
		switch r.kind {
		case runBegun:
			at[number{child, r.seq}] = len(h.runs)
			h.runs = append(h.runs, run{
				key: r.key, child: child, partition: where, epoch: r.epoch, attempt: r.attempt,
				claimed: r.from, begun: r.at, proven: r.proven,
			})
		case runEnded:
			of().ended = r.at
		case markAcked:
			of().sent, of().acked = r.from, r.at
		case markLost:
			of().sent, of().lost = r.from, r.at
		case renewed:
			of().renewed = max(of().renewed, r.from)
		default:
			h.other(child, where, &r)
		}
	})
	for where := range h.grants {
		slices.SortFunc(h.grants[where], func(a, b grant) int { return cmp.Compare(a.seq, b.seq) })
		h.grants[where] = h.withUnwritten(h.grants[where])
	}
	h.counts.kills = h.killed
	h.counts.handovers = h.handovers()
	h.counts.running = h.running()
	return err
}

func (h *history) other(child int, where partition, r *record) {
	switch r.kind {
	case duplicate:
		h.skips = append(h.skips, skip{r.key, r.at})
	case answered:
		h.answers = append(h.answers,
			answer{r.key, child, where, r.epoch, r.attempt, r.seq, r.from, r.at})
	case deadLetter:
		h.deadMessages = append(h.deadMessages, deadMessage{r.key, r.attempt, r.at})
	case dying:
		h.deaths[child] = r.at
	case granted:
		h.grants[where] = append(h.grants[where],
			grant{child: child, epoch: r.epoch, seq: r.seq, before: r.key, sent: r.from, at: r.at})
		h.prolonged(where, r)
	case wrote:
		h.writes[where] = append(h.writes[where],
			write{child: child, epoch: r.epoch, seq: r.seq, sent: r.from, renewed: r.attempt > 0})
		h.counts.marks += r.key
		if r.attempt > 0 {
			h.prolonged(where, r)
		}
	case released:
		h.orderly[span{where, r.epoch}] = r.from
	case failed:
		h.failed[r.key] = append(h.failed[r.key], r.at)
	case verdicts:
		h.counts.proven += r.key
		h.counts.maybe += r.epoch
		h.counts.unknown += r.seq
		h.counts.saturated += uint64(r.attempt)
	case refused:
		h.refused[where]++
	case saved:
		h.counts.saved++
	case loaded:
		h.counts.loaded++
	}
}

// withUnwritten adds the grants to processes that died before they could record them: the next
// grant then names a previous epoch that is in no ledger. An epoch has the time of its grant, in
// ms, by the clock that all processes share.
func (h *history) withUnwritten(written []grant) (all []grant) {
	known := map[uint64]bool{}
	for _, g := range written {
		known[g.epoch] = true
	}
	for _, g := range written {
		at := int64(g.before/1024) * int64(time.Millisecond)
		if child, died := h.diedAt(at); g.before > 0 && !known[g.before] && died {
			all = append(all, grant{child: child, epoch: g.before, seq: g.seq - 1,
				sent: at, at: at})
		}
		all = append(all, g)
	}
	return all
}

// diedAt finds a process that died within a lease of a time: Redis may execute the requests of a
// process after its death.
func (h *history) diedAt(at int64) (child int, ok bool) {
	for c, death := range h.deaths {
		if abs(death-at) <= int64(h.lease) && (!ok || abs(death-at) < abs(h.deaths[child]-at)) {
			child, ok = c, true
		}
	}
	return child, ok
}

func abs(n int64) int64 { return max(n, -n) }

func (h *history) prolonged(where partition, r *record) {
	of := span{where, r.epoch}
	h.heard[of] = max(h.heard[of], r.from)
}

// running counts the effects that ran while their partition was released in good order.
func (h *history) running() (n int) {
	for i := range h.runs {
		r := &h.runs[i]
		if from, ok := h.inOrder(r); ok && r.begun < from && r.over() > from {
			n++
		}
	}
	return n
}

// handovers counts the partitions that went from one process to another.
func (h *history) handovers() (n int) {
	for _, all := range h.grants {
		for i := 1; i < len(all); i++ {
			if all[i].child != all[i-1].child {
				n++
			}
		}
	}
	return n
}
