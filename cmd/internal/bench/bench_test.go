package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
)

// run runs the command and reads its report.
func run(t *testing.T, args ...string) *Report {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := execute(t.Context(), append(args, "--json", "--yes"), nil,
		&out, &errOut); code != cli.Done {
		t.Fatalf("%v: exit code %d: %s", args, code, errOut.String())
	}
	var r Report
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(errOut.String(), "this loads the server") ||
		!strings.Contains(errOut.String(), r.Name) {
		t.Errorf("no warning, or no name, in %q", errOut.String())
	}
	return &r
}

// check compares the counts with each other, and with the share that was asked for.
func (r *Report) check(t *testing.T, dup float64) {
	t.Helper()
	for name, s := range map[string]*Side{"onceward": &r.Onceward, "bare": &r.Bare} {
		// A worker has no duplicates for its first batch, and makes up for them with the next one.
		short := dup*float64(s.Messages) - float64(s.Duplicates)
		if s.Messages == 0 || s.Messages != s.New+s.Duplicates ||
			s.Messages != s.Operations*int64(r.Batch) ||
			short < -1 || short > float64(r.Workers)*(1+dup*float64(r.Batch)) || len(s.Errors) > 0 {
			t.Errorf("%s: %+v; %.1f duplicates are missing", name, s, short)
		}
		if rate := float64(s.Messages) / s.Seconds; math.Abs(rate/s.PerSecond-1) > 0.01 {
			t.Errorf("%s: %g messages a second, want %g", name, s.PerSecond, rate)
		}
		if l := s.Latency; l.P50 <= 0 || l.P50 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if r.Ended != "done" || r.Ratio.Min <= 0 || r.Ratio.Min > r.Ratio.Median ||
		r.Ratio.Median > r.Ratio.Max || r.Rounds != fewest {
		t.Errorf("%+v, ended %s after %d rounds", r.Ratio, r.Ended, r.Rounds)
	}
}

func TestRedis(t *testing.T) {
	for _, args := range []string{
		"--layout full", "--layout full --batch 16 --result 50", "--layout compact --batch 16",
		"--layout compact", "--rate 500",
	} {
		t.Run(args, func(t *testing.T) {
			m := miniredis.RunT(t)
			if err := m.Set("onceward-other", "stays"); err != nil {
				t.Fatal(err)
			}
			r := run(t, append(strings.Fields(args), "--redis", "redis://"+m.Addr(), "--for",
				"300ms", "--dup", "20%", "--workers", "4")...)
			r.check(t, 0.2)
			if keys := m.Keys(); len(keys) != 1 {
				t.Errorf("%d keys are there: %.300q", len(keys), keys)
			}
			if r.Bare.Commands == nil ||
				math.Abs(*r.Bare.Commands*float64(r.Bare.Messages)-float64(2*r.Bare.New+
					r.Bare.Duplicates)) > 0.5 || r.Onceward.Trips == nil || *r.Onceward.Trips <= 0 {
				t.Errorf("%+v, %+v", r.Bare, r.Onceward)
			}
			if r.Rate > 0 && r.Onceward.Messages+r.Onceward.Unsent != 74 &&
				r.Onceward.Messages+r.Onceward.Unsent != 76 {
				t.Errorf("%d messages of 75 in 150 ms", r.Onceward.Messages)
			}
		})
	}
}

func TestSQLite(t *testing.T) {
	for _, args := range []string{"--dup 10%", "--batch 8 --dup 10% --result 20"} {
		t.Run(args, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.db")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, append(strings.Fields(args), "--sql", "sqlite:"+file, "--for",
				"500ms")...).check(t, 0.1)
			tablesLeft(t, "sqlite:"+file, `SELECT name FROM sqlite_master WHERE type = 'table'`)
		})
	}
}

// tablesLeft wants none.
func tablesLeft(t *testing.T, dsn, query string) {
	t.Helper()
	o := server.Options{SQL: dsn}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	db, err := o.OpenSQL(true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		t.Errorf("the table %s is left", name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// until waits for something that happens soon.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-deadline:
			t.Error(what)
			return
		case <-tick.C:
		}
	}
}

// Who is interrupted in the midst of it removes what is there, and prints no figures.
func TestInterrupted(t *testing.T) {
	m := miniredis.RunT(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut bytes.Buffer
	ended := make(chan int)
	go func() {
		ended <- execute(ctx, []string{"--redis", "redis://" + m.Addr(), "--for", "1h", "--layout",
			"compact"}, nil, &out, &errOut)
	}()
	until(t, "nothing is written", func() bool { return len(m.Keys()) > 50 })
	cancel()
	if code := <-ended; code != cli.Interrupted || out.Len() > 0 ||
		!strings.Contains(errOut.String(), "interrupted") {
		t.Errorf("%d, %s, %s", code, out.String(), errOut.String())
	}
	if keys := m.Keys(); len(keys) > 0 {
		t.Errorf("%d keys are there: %.300q", len(keys), keys)
	}
}

// A killed run leaves nothing that stays: each key has an expiry.
func TestKeysExpire(t *testing.T) {
	m := miniredis.RunT(t)
	for _, layout := range []string{"full", "compact"} {
		o, err := parse([]string{"--redis", "redis://" + m.Addr(), "--for", "200ms",
			"--layout", layout}...)
		if err != nil {
			t.Fatal(err)
		}
		r, err := newRedis(&o, "onceward-bench-"+layout)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.close)
		if _, err := o.measure(t.Context(), r, nil, 2); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range m.Keys() {
		if ttl := m.TTL(key); ttl <= 0 || ttl > 3*leastWindow ||
			!strings.HasPrefix(key, "onceward-bench-") {
			t.Errorf("%s expires in %v", key, ttl)
		}
	}
	if len(m.Keys()) < 10 {
		t.Error("nothing is written")
	}
}

// fakeTarget is a server that does as it is told.
type fakeTarget struct {
	work           work
	samples        []sample
	lookErr, dirty error
	thorough       []bool
}

func (f *fakeTarget) title() string              { return "fake" }
func (f *fakeTarget) look(context.Context) error { return f.lookErr }
func (f *fakeTarget) open(context.Context, bool, int) (ours, bare work, err error) {
	return f.work, f.work, nil
}

func (f *fakeTarget) sample(context.Context) (sample, error) {
	if len(f.samples) == 0 {
		return sample{}, nil
	}
	s := f.samples[0]
	if len(f.samples) > 1 {
		f.samples = f.samples[1:]
	}
	return s, nil
}
func (f *fakeTarget) traffic(int) traffic   { return traffic{} }
func (f *fakeTarget) kind(err error) string { return commonKind(err) }
func (f *fakeTarget) remains() string       { return "a trace" }
func (f *fakeTarget) close()                {}
func (f *fakeTarget) clean(_ context.Context, thorough bool) error {
	f.thorough = append(f.thorough, thorough)
	return f.dirty
}

// quick is a server in fake time, so that what a slow machine makes of it does not matter.
func quick(context.Context, []message) []error {
	time.Sleep(50 * time.Microsecond)
	return nil
}

func fakeOptions() *Options {
	return &Options{For: 40 * time.Millisecond, Workers: 2, Batch: 1, MaxKeys: 1e9}
}

// Messages that have failed are told by kind, and are exit code 1; what was under way is looked for
// twice.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{work: func(ctx context.Context, batch []message) []error {
			if strings.HasSuffix(batch[0].key, "7") {
				return []error{errRanAgain}
			}
			return quick(ctx, batch)
		}}
		o := fakeOptions()
		r, err := o.runOn(t.Context(), f, io.Discard)
		if err != nil || len(r.Onceward.Errors) != 1 ||
			r.Onceward.Errors[0].Kind != "duplicate_taken_for_new" || len(f.thorough) != 1 ||
			!f.thorough[0] {
			t.Fatalf("%v, %+v, %v", err, r, f.thorough)
		}
		var out bytes.Buffer
		if err := o.tell(r, &cli.Streams{Out: &out}); !errors.Is(err, errFailed) ||
			!strings.Contains(out.String(), "ERROR  onceward: ") {
			t.Errorf("%v, %s", err, out.String())
		}
	})
}

// A server that fills up is not filled further.
func TestMemoryEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{work: quick, samples: []sample{{full: 0.5}, {full: 0.7}, {full: 0.81}}}
		o := fakeOptions()
		r, err := o.runOn(t.Context(), f, io.Discard)
		if err != nil || r.Ended != "memory" || len(f.samples) != 1 || len(f.thorough) != 1 {
			t.Fatalf("%v, %+v", err, r)
		}
		f.samples = []sample{{full: 0.9}}
		o.Force = true
		if r, err = o.runOn(t.Context(), f, io.Discard); err != nil || r.Ended != "done" {
			t.Fatalf("%v, %+v", err, r)
		}
	})
}

// What a key takes is told where the server says it, and nobody else writes.
func TestBytesPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(bytes float64, written bool) sample {
			return sample{bytes: known{bytes, true}, written: written}
		}
		for _, test := range []struct {
			name    string
			samples []sample
			told    bool
		}{
			{"alone", []sample{at(0, false), at(1e6, false), at(2e6, false), at(3e6, false),
				at(4e6, false)}, true},
			{"others write", []sample{at(0, false), at(1e6, true), at(2e6, false), at(3e6, false),
				at(4e6, false)}, false},
			{"not told", []sample{{}}, false},
			{"shrinks", []sample{at(9e6, false), at(1e6, false)}, false},
		} {
			o := fakeOptions()
			o.For = 200 * time.Millisecond
			r, err := o.runOn(t.Context(), &fakeTarget{work: quick, samples: test.samples},
				io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			switch b := r.Onceward.BytesPerKey; {
			case (b != nil) != test.told:
				t.Errorf("%s: %v of %d", test.name, b, r.Onceward.New)
			case b != nil && math.Abs(*b*float64(r.Onceward.New)/2e6-1) > 1e-6:
				t.Errorf("%s: %g bytes a key, of %d", test.name, *b, r.Onceward.New)
			}
		}
	})
}

// A run ends when its keys are used up, and not later.
func TestMaxKeys(t *testing.T) {
	m := miniredis.RunT(t)
	r := run(t, "--redis", "redis://"+m.Addr(), "--for", "1h", "--max-keys", "2000", "--workers",
		"2")
	if n := r.Onceward.New + r.Bare.New; r.Ended != "max_keys" || n > 2000 || n < 1500 ||
		r.Rounds < 1 {
		t.Errorf("%d keys, ended %s after %d rounds", n, r.Ended, r.Rounds)
	}
}

// What cannot be removed is said, with its name, and the figures all the same.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{work: quick, dirty: errors.New("gone")}
		r, err := fakeOptions().runOn(t.Context(), f, io.Discard)
		if !errors.Is(err, errLeft) || !strings.Contains(err.Error(), "a trace") || r == nil {
			t.Error(err)
		}
	})
}

// A server on another machine is not touched before somebody has said yes.
func TestConfirm(t *testing.T) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	elsewhere := "redis://0.0.0.0:" + m.Port() // leads here, and does not say so
	args := []string{"--redis", elsewhere, "--for", "200ms"}
	for answer, want := range map[string]int{"n\n": cli.Usage, "": cli.Usage, "y\n": cli.Done} {
		var out, errOut bytes.Buffer
		before := m.TotalConnectionCount()
		code := execute(t.Context(), args, strings.NewReader(answer), &out, &errOut)
		if code != want || !strings.Contains(errOut.String(), "another machine") ||
			(m.TotalConnectionCount() > before) != (want == cli.Done) {
			t.Errorf("%q: %d, %s", answer, code, errOut.String())
		}
	}
}

// A server that is away, and one whose keys cannot be removed again, are refused.
func TestRefused(t *testing.T) {
	m := miniredis.RunT(t)
	away := miniredis.NewMiniRedis()
	if err := away.StartAddr("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	gone := away.Addr()
	away.Close()
	for args, want := range map[string]string{
		"--redis redis://" + gone:                "connection refused",
		"--redis redis://x:hunter22@" + m.Addr(): "",
	} {
		var out, errOut bytes.Buffer
		code := execute(t.Context(), strings.Fields(args), nil, &out, &errOut)
		if code != cli.Usage || !strings.Contains(errOut.String(), want) ||
			strings.Contains(errOut.String(), "hunter22") || len(m.Keys()) > 0 {
			t.Errorf("%s: %d, %s", args, code, errOut.String())
		}
	}
}

// look refuses what would lose the keys of others, by what INFO says.
func TestParseInfo(t *testing.T) {
	i := parseInfo("# Memory\r\nused_memory:900\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\nmem_clients_normal:100\r\n\r\nused_cpu_user:1.5\r\nused_cpu_sys:0.5\r\n")
	if i.full() != 0.9 || i.data() != (known{800, true}) || i.cpu() != (known{2, true}) ||
		i.text["maxmemory_policy"] != "noeviction" {
		t.Errorf("%+v", i)
	}
	if none := parseInfo(""); none.full() != 0 || none.data().ok || none.cpu().ok {
		t.Errorf("%+v", none)
	}
}

var _ redis.Hook = (*counter)(nil)

func TestPrint(t *testing.T) {
	two := 2.0
	r := Report{
		Store: "redis full", Rounds: 2, Batch: 1, Rate: 10, MaxMemory: 1e9,
		Onceward: Side{PerSecond: 1234.5, Latency: Latency{0.0123, 1.5, 20, 3000}, Commands: &two,
			CPU: &two, BytesPerKey: &two, Errors: []Fault{{"timeout", 3, "i/o\ntimeout"}}},
		Ratio: Ratio{0.5, 0.4, 0.6}, Notes: []string{"a note"},
	}
	var out bytes.Buffer
	if err := r.print(&cli.Streams{Out: &out}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"10 messages a second due", "1234 ", "12.3µs", "1.5ms", "3s", "2.00", "2.0 µs",
		"ratio  0.50 of bare (0.40 to 0.60",
		"room   1.9 MiB for a million keys, 0.2 % of maxmemory",
		"ERROR  onceward: 3 timeout: i/o timeout", "note   a note", "used up by 500000 messages",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
