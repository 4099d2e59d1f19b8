package audit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func sent(id string, after time.Duration, payload string) *message {
	return &message{id: id, time: start.Add(after), payload: []byte(payload), produced: true}
}

const body = "a payload of more than 32 bytes, with an amount of "

func TestCauses(t *testing.T) {
	first := sent("a", 0, body+"1")
	elsewhere, dead, reused := sent("a", time.Minute, body+"1"), sent("a", time.Hour, body+"1"),
		sent("a", time.Second, body+"2")
	elsewhere.partition, dead.replayed = 1, true
	for want, m := range map[cause]*message{
		producerRetry: sent("a", 0, body+"1"), sentAgain: sent("a", time.Second, body+"1"),
		otherPartition: elsewhere, fromDeadLetters: dead,
	} {
		tally := newTally(1000)
		tally.add(first)
		tally.add(m)
		assert.Equal(t, map[cause]uint64{want: 1}, tally.Causes)
		assert.EqualValues(t, 1, tally.Duplicates)
		assert.Equal(t, m.time.Sub(start).Milliseconds(), tally.Longest)
	}
	tally := newTally(1000)
	tally.add(first)
	tally.add(reused)
	assert.Zero(t, tally.Duplicates, "of an id that stands for two payloads")
	assert.Equal(t, []uint64{1, 1}, []uint64{tally.ReusedMessages, tally.Reused})
	assert.Equal(t, "a", tally.ReusedExamples[0].ID)
}

// If each attempt gets a new id, the payload shows it. A message without an id counts as missing.
func TestRemadeIDs(t *testing.T) {
	tally := newTally(1000)
	for _, id := range []string{"a", "b", "", "a"} {
		tally.add(sent(id, 0, body+"1"))
	}
	tally.add(sent("c", 0, "short")) // is equal by chance
	tally.add(sent("d", 0, "short"))
	assert.EqualValues(t, 2, tally.Remade)
	assert.EqualValues(t, 1, tally.Missing)
	assert.EqualValues(t, 1, tally.Duplicates)
	assert.Len(t, tally.RemadeExamples, 2)
}

// Partitions are read at the same time, so a later message may be read before an earlier one.
func TestAgeOfWhatIsReadLate(t *testing.T) {
	tally := newTally(1000)
	for _, after := range []time.Duration{time.Hour, 2 * time.Hour, 0} {
		tally.add(sent("a", after, body))
	}
	assert.Equal(t, 2*time.Hour, span(tally.Longest))
	assert.InEpsilon(t, time.Hour, tally.Ages.within(0.5), 0.06)
}

// If fewer ids are kept than there are, the counts are right on average, and memory is bounded.
func TestSampling(t *testing.T) {
	const messages = 150_000
	most := 0
	random, exact, few := rand.New(rand.NewPCG(1, 2)), newTally(messages), newTally(4000)
	for range messages {
		n := random.IntN(messages)
		m := sent(fmt.Sprint("id-", n), time.Duration(n)*time.Millisecond, body+fmt.Sprint(n%97, n))
		if n%50 == 0 {
			m.payload = append(m.payload, byte(random.IntN(2)))
		}
		exact.add(m)
		few.add(m)
		most = max(most, len(few.IDs), len(few.Payloads))
	}
	assert.Zero(t, exact.Shift)
	assert.GreaterOrEqual(t, few.Shift, uint(5))
	assert.LessOrEqual(t, most, 4000)
	assert.EqualValues(t, messages, exact.Distinct+exact.Duplicates+exact.ReusedMessages)
	for name, of := range map[string]func(*tally) uint64{
		"duplicates": func(t *tally) uint64 { return t.Duplicates },
		"ids":        func(t *tally) uint64 { return t.Distinct },
		"ages":       func(t *tally) uint64 { return t.Ages.total() },
		"causes":     func(t *tally) uint64 { return t.Causes[producerRetry] },
	} {
		assert.InEpsilon(t, of(exact), of(few), 0.1, name)
	}
}

func TestAges(t *testing.T) {
	a := ages{}
	assert.Zero(t, a.within(0.5))
	assert.Empty(t, a.bars())
	for n := range int64(1000) {
		a.add(n*1000, 1)
	}
	a.add(-5, 1)
	for _, share := range []float64{0.1, 0.5, 0.999, 1} {
		assert.InEpsilon(t, 1000*share, a.within(share).Seconds(), 0.06)
	}
	bars, total := a.bars(), uint64(0)
	for _, b := range bars {
		total += b.Count
	}
	assert.EqualValues(t, 1001, total)
	assert.Equal(t, time.Hour.Milliseconds(), bars[len(bars)-1].WithinMS)
	a.add((90 * day).Milliseconds(), 1)
	last := a.bars()[len(steps)]
	assert.Equal(t, Bar{Count: 1}, last)
	assert.Equal(t, "later", last.Label())
}

// A retry after exactly one of the steps is within it. One that comes a little later is not.
func TestRoundAges(t *testing.T) {
	for i, step := range steps {
		a := ages{}
		for _, early := range []int64{0, 1, step.Milliseconds() / 100} {
			a.add(step.Milliseconds()-early, 1)
		}
		assert.Equal(t, step, a.within(1))
		a.add(step.Milliseconds()+1, 1)
		bars := a.bars()
		require.Len(t, bars, i+2)
		assert.EqualValues(t, []uint64{3, 1}, []uint64{bars[i].Count, bars[i+1].Count}, step)
	}
}

// The age of half of the retries, and of nearly all, is never above the longest age.
func TestAgesUpToTheLongest(t *testing.T) {
	tally := newTally(1000)
	tally.add(sent("a", 0, body))
	tally.add(sent("a", 1519*time.Second, body))
	r := tally.report(&Options{}, true)
	assert.Equal(t, []int64{1_519_000, 1_519_000, 1_519_000}, []int64{r.Half, r.Most, r.Longest})
}

func TestWindowFor(t *testing.T) {
	for longest, want := range map[time.Duration]time.Duration{
		time.Millisecond: time.Minute, 40 * time.Second: 10 * time.Minute,
		3 * time.Hour: 6 * time.Hour, 4 * time.Hour: day, 20 * day: 40 * day,
	} {
		assert.Equal(t, want, windowFor(longest), longest)
	}
}

func TestWords(t *testing.T) {
	for ms, want := range map[int64]string{0: "0s", 1500: "1.5s", 60_000: "1m", 3_600_000: "1h",
		5_400_000: "1h30m", 86_400_000: "1d", 36 * 3_600_000: "36h", 48 * 3_600_000: "2d",
		36_610_000: "10h10m10s"} {
		assert.Equal(t, want, age(ms))
	}
	assert.Equal(t, "1 234 567", number(1234567))
	assert.Equal(t, []string{"0.00 %", "less than 0.01 %", "2.94 %", "50.0 %"},
		[]string{percent(0), percent(1e-9), percent(0.0294), percent(0.5)})
}
