package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/servertest"
)

func TestParseOptionsRefuses(t *testing.T) {
	const url = "--metrics http://a:1/metrics "
	for args, want := range map[string]string{
		"":                                      "--metrics, --redis or --sql is missing",
		"--metrics a:1":                         "--metrics has a URL",
		"--metrics http://u:hunter22@a,ftp://b": "--metrics has a URL",
		url + "--every 1ms":                     "--every is 1ms",
		url + "--for 1s":                        "less than --every",
		url + "--table t":                       "need --sql",
		url + "--cluster":                       "--redis or --sql is missing",
		url + "more":                            `unexpected argument "more"`,
		"--redis redis://r --name n":            "--name needs --metrics",
		"--sql u@tcp(h:1)/db":                   "mysql does not count",
	} {
		_, err := parsed(strings.Fields(args)...)
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) ||
			strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
}

// What a program with package telemetry has exposed.
func TestParse(t *testing.T) {
	file, err := os.Open("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	all, err := parse(file, "payments")
	if err != nil {
		t.Fatal(err)
	}
	p, ages := newProcesses(), map[float64]float64{}
	p.count(deltas(nil, all), 1, ages)
	p.state(all)
	half := quantile(ages, 0.5)
	if p.Claims["acquired"] == 0 || p.Causes["producer_retry"] == 0 ||
		p.Causes["producer_retry"] != p.Claims["duplicate"] || p.Ends["succeeded"] == 0 ||
		p.Window != 3600 || half == nil || *half <= 0 || *half > 60 {
		t.Errorf("%+v, %v", p, ages)
	}
	if _, err := file.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	if none, err := parse(file, "orders"); err != nil || len(none) != 0 {
		t.Errorf("%v, %v", none, err)
	}
	for _, line := range []string{"onceward_x", "onceward_x{", `onceward_x{a="b} 1`,
		`onceward_x{a="b"`, `onceward_x{a} 1`, "onceward_x one"} {
		if got, err := parse(strings.NewReader(line), ""); err == nil {
			t.Errorf("%s: %v", line, got)
		}
	}
	if got, err := parse(strings.NewReader(`onceward_x{a="b,c}\"d\\",e="f"} 1.5e3`+
		"\n# onceward\nother 1"), ""); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	} else {
		for _, s := range got {
			if s.metric != "onceward_x" || s.labels["a"] != `b,c}"d\` || s.labels["e"] != "f" ||
				s.value != 1500 {
				t.Errorf("%+v", s)
			}
		}
	}
}

// The metrics that are read are those that package telemetry has: its page lists them, and a test
// of its own holds the page to the code.
func TestMetricsExist(t *testing.T) {
	page, err := os.ReadFile("../../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{claimsMetric, endsMetric, agesMetric, windowMetric}
	for name := range kinds {
		names = append(names, name)
	}
	for name := range gauges {
		names = append(names, name)
	}
	have := strings.NewReplacer(".", "_").Replace(string(page))
	for _, name := range names {
		for _, end := range []string{"_bucket", "_seconds", "_total"} {
			name = strings.TrimSuffix(name, end)
		}
		if !strings.Contains(have, "`"+name+"`") {
			t.Errorf("docs/telemetry.md has no %s", name)
		}
	}
}

func claims(outcome, cause string, n float64) series {
	return series{claimsMetric,
		map[string]string{"onceward_outcome": outcome, "onceward_cause": cause}, n}
}

// Rates are of the time between two answers of one process. One that has just begun to answer, or
// does not answer, adds none; one that was started again has counted from zero.
func TestTick(t *testing.T) {
	o := &Options{Metrics: []string{"a", "b", "c", "d"}}
	start := time.Now()
	before := &view{now: start, at: map[string]time.Time{"a": start, "b": start, "c": start},
		processes: map[string]sample{
			"a": {"new": claims("acquired", "none", 100)},
			"b": {"new": claims("acquired", "none", 500)},
			"c": {"new": claims("acquired", "none", 7)},
		}}
	later := start.Add(2 * time.Second)
	after := &view{now: later, at: map[string]time.Time{"a": later, "b": start.Add(4 * time.Second),
		"d": later}, failed: map[string]string{"c": "refused"},
		processes: map[string]sample{
			"a": {"new": claims("acquired", "none", 120), "again": claims("duplicate", "late", 4),
				"window": {windowMetric, nil, 60}},
			"b": {"new": claims("acquired", "none", 40), "window": {windowMetric, nil, 30}},
			"d": {"new": claims("acquired", "none", 1e6), "lag": {"onceward_kafka_lag", nil, 5}},
		}}
	p := o.tick(before, after).Processes
	if p.Claims["acquired"] != 10+10 || p.Claims["duplicate"] != 2 || p.Causes["late"] != 2 ||
		p.Window != 30 || p.Now["kafka_lag"] != 5 ||
		p.Asked != 4 || p.Answered != 3 || p.Counted != 2 {
		t.Errorf("%+v", p)
	}
	text := strings.Join((&Tick{Processes: p, Failed: after.failed}).lines(), "\n")
	for _, want := range []string{"claims 22.0/s  acquired 20.0/s  duplicate 2.0/s",
		"duplicates 2.0/s  late 2.0/s", "now kafka lag 5", "of 2 processes of 4",
		"NO ANSWER c: refused"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	// c answers again: its rate is of the whole time since.
	after.or(before)
	last := &view{now: start.Add(10 * time.Second),
		at:        map[string]time.Time{"c": start.Add(10 * time.Second)},
		processes: map[string]sample{"c": {"new": claims("acquired", "none", 107)}}}
	if p := o.tick(after, last).Processes; p.Claims["acquired"] != 10 {
		t.Errorf("%+v", p)
	}
}

func TestQuantile(t *testing.T) {
	ages := map[float64]float64{1: 50, 60: 98, 3600: 99, math.Inf(1): 100}
	for share, want := range map[float64]float64{0.5: 1, 0.51: 60, 0.99: 3600, 1: -1} {
		if got := quantile(ages, share); got == nil || *got != want {
			t.Errorf("%v: %v, want %v", share, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != nil {
		t.Error(*got)
	}
}

// The whole command, on a process that has ten more claims each time it is asked.
func TestMainOnProcesses(t *testing.T) {
	var asked atomic.Int64
	process := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE x counter\nonceward_dedup_claims_total{onceward_outcome=\"acquired\"} %d\n", 10*asked.Add(1))
	}))
	t.Cleanup(process.Close)
	gone := "http://u:hunter22@127.0.0.1:1/metrics"
	var out, errOut bytes.Buffer
	args := []string{"--metrics", process.URL + "," + gone, "--every", "100ms", "--for", "5s",
		"--json"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	enough := writer(func(p []byte) (int, error) {
		n, err := out.Write(p)
		if strings.Count(out.String(), "\n") == 3 {
			cancel()
		}
		return n, err
	})
	if code := execute(ctx, args, enough, &errOut); code != cli.Interrupted {
		t.Fatalf("exit code %d, %s%s", code, out.String(), errOut.String())
	}
	for line := range strings.Lines(out.String()) {
		var tick Tick
		if err := json.Unmarshal([]byte(line), &tick); err != nil {
			t.Fatal(err)
		}
		if p := tick.Processes; p.Claims["acquired"] <= 0 || p.Counted != 1 || p.Asked != 2 ||
			len(tick.Failed) != 1 {
			t.Errorf("%s", line)
		}
	}
	if strings.Contains(out.String()+errOut.String(), "hunter22") {
		t.Errorf("a password is told: %s%s", out.String(), errOut.String())
	}
	out.Reset()
	if code := execute(t.Context(), []string{"--metrics", process.URL, "--every", "100ms", "--for",
		"250ms"}, &out, &errOut); code != cli.Done || !strings.Contains(out.String(), "claims ") {
		t.Errorf("exit code %d, %s%s", code, out.String(), errOut.String())
	}
	for range 5 { // the tick that is due with the end
		out.Reset()
		if code := execute(t.Context(), []string{"--metrics", process.URL, "--every", "100ms",
			"--for",
			"100ms"}, &out, &errOut); code != cli.Done || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("exit code %d, not one line: %q%s", code, out.String(), errOut.String())
		}
	}
}

type writer func(p []byte) (int, error)

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) { return w(p) }

// Where nobody answers from the start, and where no metric is ours, nothing is shown.
func TestUnanswered(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "go_goroutines 5")
	}))
	t.Cleanup(other.Close)
	missing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(missing.Close)
	for args, want := range map[string]string{
		"--metrics http://127.0.0.1:1/": "http://127.0.0.1:1/: ",
		"--metrics " + other.URL:        "no metric of onceward", "--metrics " + missing.URL: "404",
		"--redis redis://127.0.0.1:1":               "--redis: ",
		"--sql postgres://u:hunter22@127.0.0.1:1/d": "--sql: ",
	} {
		var out, errOut bytes.Buffer
		code := execute(t.Context(), strings.Fields(args), &out, &errOut)
		if code != cli.Usage || !strings.Contains(errOut.String(), want) ||
			strings.Contains(errOut.String(), "hunter22") || out.Len() > 0 {
			t.Errorf("%s: exit code %d, %s%s", args, code, out.String(), errOut.String())
		}
	}
}

// until watches a server until its tick is as wanted.
func until(t *testing.T, args []string, between func(), wanted func(*Tick) bool) {
	t.Helper()
	o, err := parsed(args...)
	if err != nil {
		t.Fatal(err)
	}
	w, err := open(&o)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	before := w.look(t.Context())
	for deadline := time.Now().Add(20 * time.Second); ; {
		between()
		after := w.look(t.Context())
		tick := o.tick(before, after)
		if wanted(tick) {
			if text := strings.Join(tick.lines(), "\n"); text == "" ||
				strings.Contains(text, "NO ANSWER") {
				t.Errorf("%q", text)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v", tick, after.failed)
		}
	}
}

func TestServers(t *testing.T) {
	t.Run("redis", func(t *testing.T) {
		until(t, []string{"--redis", "redis://" + servertest.Redis(t)}, func() {},
			func(tick *Tick) bool {
				return len(tick.Servers) == 1 && tick.Servers[0].Commands > 0 &&
					tick.Servers[0].UsedMemory > 0
			})
	})
	t.Run("postgres", func(t *testing.T) {
		table, dsn := servertest.Prefix(t), servertest.Postgres(t)
		o, err := parsed("--sql", dsn)
		if err != nil {
			t.Fatal(err)
		}
		db, err := o.Server.OpenSQL(true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		do := func(statement string) {
			t.Helper()
			if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
				t.Fatal(err)
			}
		}
		do("CREATE TABLE " + table + " (id int)")
		t.Cleanup(func() { do("DROP TABLE " + table) })
		until(t, []string{"--sql", dsn, "--table", table}, func() {
			do("INSERT INTO " + table + " VALUES (1)")
		}, func(tick *Tick) bool {
			return tick.Table != nil && tick.Table.Name == table && tick.Table.Inserted > 0
		})
	})
}

// A label is written by whoever serves the metrics: a terminal must not obey it.
func TestLabelsAreQuoted(t *testing.T) {
	got := parts(map[string]float64{"acq\x1b[31m\x1b]0;pwned\a": 1, "in_flight": 2})
	if strings.ContainsAny(got, "\x1b\a") || !strings.Contains(got, `"acq\x1b[31m`) ||
		!strings.Contains(got, "in flight") {
		t.Errorf("%q", got)
	}
}
