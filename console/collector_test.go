package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
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

// Counts lie in the minute in which they were made, and go when it is an hour old.
func TestMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collector(t)
		o := observer(t, c, "a", time.Hour)
		o.Claimed(dedup.Event{Outcome: dedup.Acquired})
		time.Sleep(59 * time.Minute)
		o.Claimed(dedup.Event{Outcome: dedup.Duplicate, Cause: driver.ProducerRetry,
			Age: 59 * time.Minute})
		h := lastHour(c)
		if h.claims() != 2 || h.minutes[0].outcome[dedup.Acquired] != 1 ||
			h.minutes[59].outcome[dedup.Duplicate] != 1 || h.minutes[59].cause[2] != 1 {
			t.Errorf("after 59 minutes: %+v", h)
		}
		time.Sleep(time.Minute)
		h = lastHour(c)
		if h.claims() != 1 || h.minutes[58].outcome[dedup.Duplicate] != 1 {
			t.Errorf("after an hour: %+v", h)
		}
		o.Claimed(dedup.Event{Outcome: dedup.Uncertain}) // where the first minute was
		if h = lastHour(c); h.claims() != 2 || h.minutes[59].outcome[dedup.Uncertain] != 1 ||
			h.minutes[59].outcome[dedup.Acquired] != 0 {
			t.Errorf("a minute begins with the counts of another: %+v", h.minutes[59])
		}
		time.Sleep(24 * time.Hour)
		if h = lastHour(c); h.claims() != 0 || h.oldest != 0 {
			t.Errorf("a day later: %+v", h)
		}
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
	o.Claimed(dedup.Event{Outcome: dedup.InFlight, Age: time.Hour}) // has none
	h := lastHour(c)
	all, late := h.aged(lateBin)
	_, end := h.aged(endBin)
	if all != 10 || late != 6 || end != 4 || h.age[0] != 2 || h.age[1] != 1 ||
		h.age[ageBins] != 2 || h.tally[ageless] != 1 || h.oldest != 10*million {
		t.Errorf("%d ages, %d late, %d at the end, oldest %d: %v", all, late, end, h.oldest, h.age)
	}
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
		if got := advice(&h); !strings.Contains(got, want) {
			t.Errorf("%v: %s", ages, got)
		}
	}
}

// Values that this version does not know are counted, and break nothing.
func TestUnknownValues(t *testing.T) {
	c := collector(t)
	o := observer(t, c, "a", time.Hour)
	o.Claimed(dedup.Event{Outcome: 200, Cause: "of tomorrow", Age: -1})
	o.Ended(dedup.Event{State: 200})
	if h := lastHour(c); h.total.outcome[dedup.Unknown] != 1 || h.total.cause[causes-1] != 1 {
		t.Errorf("%+v", h.total)
	}
}

// Many goroutines count while pages are made and minutes begin; nothing is lost. Run with -race.
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
				if w.Code != 200 {
					t.Errorf("status %d", w.Code)
				}
				time.Sleep(30 * time.Second)
			}
		})
		wg.Wait()
		if h := lastHour(c); h.claims() != workers*each || h.total.cause[4] != workers*each ||
			h.tally[succeeded] != workers*each {
			t.Errorf("%d claims, %d late, %d ended of %d", h.claims(), h.total.cause[4],
				h.tally[succeeded], workers*each)
		}
	})
}

// Names made from data fill no memory.
func TestCollectorIsBounded(t *testing.T) {
	if size := minutes * unsafe.Sizeof(bucket{}); size > 30<<10 {
		t.Errorf("a name takes %d bytes; the documentation says 30 KiB", size)
	}
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
		if grown := int64(heap()) - int64(before); grown > 200<<10 {
			t.Errorf("%d bytes more after as many events again", grown)
		}
		all := c.counted()
		if len(all) != maxSources+1 || all[maxSources].name != otherSources {
			t.Fatalf("%d names, the last %q", len(all), all[len(all)-1].name)
		}
		if h := lastHour(c); h.claims() != 59*100 {
			t.Errorf("%d claims in the hour, want %d", h.claims(), 59*100)
		}
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
		if !errors.As(err, &input) || input.Field != test.field {
			t.Errorf("%q, %v: %v", test.name, test.window, err)
		}
	}
	observer(t, c, "a", time.Hour)
	observer(t, c, "a", time.Hour)
	if _, err := c.Observer("a", time.Minute); err == nil ||
		!strings.Contains(err.Error(), "1h0m0s before") {
		t.Errorf("another window: %v", err)
	}
	assert.Equal(t, 1, len(c.counted()))
}

// The axis fits what it measures.
func TestTicks(t *testing.T) {
	for top := uint64(1); top < 100_000; top = top*5/4 + 1 {
		c := chart{Series: []series{{}}}
		c.stack([][]uint64{{top}})
		if n := len(c.Ticks); n < 2 || n > 7 {
			t.Errorf("%d: %d ticks: %v", top, n, c.Ticks)
		}
		if c.Bars[0].Y < "0" || strings.HasPrefix(c.Bars[0].Y, "-") {
			t.Errorf("%d: the bar leaves the chart: %+v", top, c.Bars[0])
		}
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
