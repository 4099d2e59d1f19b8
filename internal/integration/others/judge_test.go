package others_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// count has the results of a row's messages.
type count struct {
	lost    int // messages whose copies were all acknowledged, and whose effect never ended
	doubled int // messages whose effect began more than once
	// messages that were in flight without an owner for longer than a lease, or never came to an
	// end
	stuck   int
	effects int // that began
}

// evidence is the data of a run that judge reads.
type evidence struct {
	messages int
	records  []record
	// where the effect is a row of a transaction: how many each message has; else nil
	rows       map[uint32]int
	unfinished map[uint32]bool // messages with a copy that was never acknowledged
	// messages that were called in flight for too long after all possible owners were gone
	ownerless map[uint32]bool
}

func judge(e evidence) count {
	first, last := map[uint32]int{}, map[uint32]int{}
	for _, r := range e.records {
		switch r.kind {
		case begun:
			first[r.message]++
		case ended:
			last[r.message]++
		case stalled:
		}
	}
	if e.rows != nil { // an effect that was rolled back has not happened
		first, last = e.rows, e.rows
	}
	var c count
	for m := range uint32(e.messages) {
		c.effects += first[m]
		if last[m] == 0 && !e.unfinished[m] {
			c.lost++
		}
		if first[m] > 1 {
			c.doubled++
		}
		if e.unfinished[m] || e.ownerless[m] {
			c.stuck++
		}
	}
	return c
}

// The judge finds each fault, and no other.
func TestJudge(t *testing.T) {
	b, e := record{kind: begun}, record{kind: ended}
	yes := map[uint32]bool{0: true}
	for _, c := range []struct {
		name string
		of   evidence
		want count
	}{
		{"once", evidence{records: []record{b, e}}, count{effects: 1}},
		{"never", evidence{}, count{lost: 1}},
		{"half", evidence{records: []record{b}}, count{lost: 1, effects: 1}},
		{"half, then whole", evidence{records: []record{b, b, e}}, count{doubled: 1, effects: 2}},
		{"three times is one message", evidence{records: []record{b, e, b, e, b, e}},
			count{doubled: 1, effects: 3}},
		{"neither lost nor done", evidence{unfinished: yes}, count{stuck: 1}},
		{"done at last", evidence{records: []record{b, e}, ownerless: yes},
			count{stuck: 1, effects: 1}},
		{"rolled back, then committed",
			evidence{records: []record{b, e, b, e}, rows: map[uint32]int{0: 1}}, count{effects: 1}},
		{"only rolled back", evidence{records: []record{b, e}, rows: map[uint32]int{}},
			count{lost: 1}},
		{"committed twice", evidence{rows: map[uint32]int{0: 2}}, count{doubled: 1, effects: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.of.messages = 1
			assert.Equal(t, c.want, judge(c.of))
		})
	}
}
