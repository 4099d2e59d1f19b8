package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func collector(t *testing.T) *Console {
	t.Helper()
	c, err := New(Options{Store: dedup.Memory(10)})
	require.NoError(t, err)
	return c
}

func observer(t *testing.T, c *Console, name string, window time.Duration) dedup.Observer {
	t.Helper()
	o, err := c.Observer(name, window)
	require.NoError(t, err)
	return o
}

func lastHour(c *Console) (h hour) {
	for _, s := range c.counted() {
		h.add(s)
	}
	return h
}

// Counts belong to the minute in which they were made, and are dropped after an hour.
func TestMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collector(t)
		o := observer(t, c, "a", time.Hour)
		o.Claimed(dedup.Event{Outcome: dedup.Acquired})
		time.Sleep(59 * time.Minute)
		o.Claimed(dedup.Event{Outcome: dedup.Duplicate, Cause: driver.ProducerRetry,
			Age: 59 * time.Minute})
		h := lastHour(c)
		assert.EqualValues(t, 2, h.claims())
		assert.EqualValues(t, 1, h.minutes[0].outcome[dedup.Acquired])
		assert.EqualValues(t, 1, h.minutes[59].outcome[dedup.Duplicate])
		assert.EqualValues(t, 1, h.minutes[59].cause[2])
		time.Sleep(time.Minute)
		h = lastHour(c)
		assert.EqualValues(t, 1, h.claims())
		assert.EqualValues(t, 1, h.minutes[58].outcome[dedup.Duplicate])
		o.Claimed(dedup.Event{Outcome: dedup.Uncertain}) // reuses the slot of the first minute
		h = lastHour(c)
		assert.EqualValues(t, 2, h.claims())
		assert.EqualValues(t, 1, h.minutes[59].outcome[dedup.Uncertain])
		assert.Zero(t, h.minutes[59].outcome[dedup.Acquired], "the counts of another minute")
		time.Sleep(24 * time.Hour)
		h = lastHour(c)
		assert.Zero(t, h.claims())
		assert.Zero(t, h.oldest)
	})
}

func TestAges(t *testing.T) {
	c := collector(t)
	o := observer(t, c, "a", 100*time.Hour)
	for _, age := range []time.Duration{1, 4 * time.Hour, 5 * time.Hour, 49 * time.Hour,
		50 * time.Hour, 89 * time.Hour, 90 * time.Hour, 99 * time.Hour, 100 * time.Hour,
		1000 * time.Hour, 0} {
		o.Claimed(dedup.Event{Outcome: dedup.Duplicate, Age: age})
	}
	o.Claimed(dedup.Event{Outcome: dedup.InFlight, Age: time.Hour}) // this event has no age
	h := lastHour(c)
	all, late := h.aged(lateBin)
	_, end := h.aged(endBin)
	assert.Equal(t, []uint64{10, 6, 4, 2, 1, 2, 1}, []uint64{all, late, end, h.age[0], h.age[1],
		h.age[ageBins], h.tally[ageless]})
	assert.EqualValues(t, 10*million, h.oldest)
	for want, ages := range map[string][]time.Duration{
		"nothing can be said": nil, "long enough": {time.Minute},
		"half of the window was over": {time.Minute, 55 * time.Hour},
		"raise the window":            {95 * time.Hour},
	} {
		c := collector(t)
		o := observer(t, c, "a", 100*time.Hour)
		for _, age := range ages {
			o.Claimed(dedup.Event{Outcome: dedup.Duplicate, Age: age})
		}
		h := lastHour(c)
		assert.Contains(t, advice(&h), want, ages)
	}
}

// Values that this version does not know are counted, and cause no error.
func TestUnknownValues(t *testing.T) {
	c := collector(t)
	o := observer(t, c, "a", time.Hour)
	o.Claimed(dedup.Event{Outcome: 200, Cause: "of tomorrow", Age: -1})
	o.Ended(dedup.Event{State: 200})
	h := lastHour(c)
	assert.EqualValues(t, 1, h.total.outcome[dedup.Unknown])
	assert.EqualValues(t, 1, h.total.cause[causes-1])
}

// Many goroutines count while pages are made and minutes begin. No count is lost. Run with -race.
func TestCollectorRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collector(t)
		const workers, each = 8, 1000
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				o := observer(t, c, fmt.Sprint("name", w%3), time.Hour)
				for i := range each {
					o.Claimed(dedup.Event{Outcome: dedup.Duplicate, Cause: driver.Late,
						Age: time.Duration(i)})
					o.Ended(dedup.Event{State: driver.StateSucceeded})
					if i%50 == 0 {
						time.Sleep(time.Minute)
					}
				}
			})
		}
		wg.Go(func() {
			for range 20 {
				w := httptest.NewRecorder()
				c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				assert.Equal(t, 200, w.Code)
				time.Sleep(30 * time.Second)
			}
		})
		wg.Wait()
		h := lastHour(c)
		assert.EqualValues(t, workers*each, h.claims())
		assert.EqualValues(t, workers*each, h.total.cause[4])
		assert.EqualValues(t, workers*each, h.tally[succeeded])
	})
}

// Names that contain data do not fill memory.
func TestCollectorIsBounded(t *testing.T) {
	assert.LessOrEqual(t, minutes*unsafe.Sizeof(bucket{}), uintptr(30<<10),
		"the documentation says 30 KiB")
	synctest.Test(t, func(t *testing.T) {
		c := collector(t)
		fill := func() {
			for range 3 * minutes {
				for i := range 100 {
					observer(t, c, fmt.Sprint("tenant ", i),
						time.Hour).Claimed(dedup.Event{Outcome: dedup.Duplicate, Age: time.Minute})
				}
				time.Sleep(time.Minute)
			}
		}
		fill()
		before := heap()
		fill()
		assert.LessOrEqual(t, int64(heap())-int64(before), int64(200<<10),
			"after as many events again")
		all := c.counted()
		require.Len(t, all, maxSources+1)
		assert.Equal(t, otherSources, all[maxSources].name)
		h := lastHour(c)
		assert.EqualValues(t, 59*100, h.claims())
	})
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestObserverArguments(t *testing.T) {
	c := collector(t)
	for _, test := range []struct {
		name   string
		window time.Duration
		field  string
	}{{"", time.Hour, "name"}, {strings.Repeat("a", 65), time.Hour, "name"}, {"a", 0, "window"},
		{"a", -1, "window"}} {
		_, err := c.Observer(test.name, test.window)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input)
		assert.Equal(t, test.field, input.Field)
	}
	observer(t, c, "a", time.Hour)
	observer(t, c, "a", time.Hour)
	_, err := c.Observer("a", time.Minute)
	assert.ErrorContains(t, err, "1h0m0s before")
	assert.Equal(t, 1, len(c.counted()))
}

// The axis fits the largest bar.
func TestTicks(t *testing.T) {
	for top := uint64(1); top < 100_000; top = top*5/4 + 1 {
		c := chart{Series: []series{{}}}
		c.stack([][]uint64{{top}})
		assert.GreaterOrEqual(t, len(c.Ticks), 2, top)
		assert.LessOrEqual(t, len(c.Ticks), 7, top)
		y, err := strconv.ParseFloat(c.Bars[0].Y, 64)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, y, float64(plotTop), "%d: the bar leaves the chart", top)
	}
}

func BenchmarkClaimed(b *testing.B) {
	c, err := New(Options{Store: dedup.Memory(1)})
	if err != nil {
		b.Fatal(err)
	}
	o, err := c.Observer("a", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			o.Claimed(dedup.Event{Outcome: dedup.Duplicate, Cause: driver.ProducerRetry,
				Age: time.Minute})
		}
	})
}
