package plan

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
)

const needed = "--rate 1000 --window 1h "

func parse(args string) (o Options, err error) {
	err = cli.Parse(o.command(), strings.Fields(args)...)
	return o, err
}

func TestParseOptions(t *testing.T) {
	o, err := parse("--rate 1000 --window 72h --dup 5% --result 200 --key 46 --spare 0.5 --bloom 1% --origin")
	if err != nil {
		t.Fatal(err)
	}
	want := Options{Rate: 1000, Window: 72 * time.Hour, Dup: 0.05, Result: 200, Key: 46, Spare: 0.5,
		FalsePositives: 0.01, Origin: true, Prefix: "ow"}
	if o != want {
		t.Errorf("%+v, want %+v", o, want)
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                                  "--rate and --window are missing",
		"--window 1h --rate NaN":            "--rate is missing",
		"--window 1h --rate Inf":            "--rate is missing",
		"--rate 1":                          "--window is missing",
		needed + "--dup 1":                  "--dup is 1",
		needed + "--dup -1%":                "--dup is -0.01",
		needed + "--dup x":                  "a share is written as 0.05 or 5%",
		needed + "--dup NaN":                "--dup is NaN",
		needed + "--result -1":              "--result is -1",
		needed + "--result 999999999999":    "--result is 999999999999",
		needed + "--key 256":                "--key is 256",
		needed + "--spare -0.1":             "--spare is -0.1",
		needed + "--bloom 0":                "--bloom is 0",
		needed + "--bloom 50%":              "--bloom is 0.5",
		needed + "--prefix=":                `--prefix: "" is not`,
		needed + "--prefix {x}":             `--prefix: "{x}" is not`,
		"--rate 0.0001 --window 1s":         "there is nothing to plan",
		"--rate 4000000 --window 1000s":     "up to 4e+09",
		needed + "more":                     `unexpected argument "more"`,
		needed + "-what":                    "unknown shorthand flag",
		"--rate 1000 --window 1h --spare x": "a share is written as 0.05 or 5%",
	} {
		_, err := parse(args)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
}

// The size classes of jemalloc, from its manual.
func TestAllocated(t *testing.T) {
	for n, want := range map[int]int{
		1: 8, 8: 8, 9: 16, 24: 32, 60: 64, 65: 80, 113: 128, 129: 160, 161: 192, 225: 256,
		257: 320, 513: 640, 3073: 3584, 3584: 3584, 3585: 4096, 14337: 16384,
	} {
		if got := allocated(n); got != want {
			t.Errorf("%d bytes take %d, want %d", n, got, want)
		}
	}
}

// A million keys that are strings take the memory that bench/results/redis.json has.
func TestStrings(t *testing.T) {
	for _, test := range []struct {
		name, value int
		want        float64
	}{{46, 28, 192.78}, {27, 40, 176.78}} {
		if got := records(1e6, test.name, test.value) / 1e6; math.Abs(got-test.want) > 0.01 {
			t.Errorf("a key of %d bytes with %d: %.2f, want %.2f", test.name, test.value,
				got, test.want)
		}
	}
}

// A bucket that outgrows its array costs eight times as much a key, as redisadapter's comment has
// it.
func TestOvergrownBuckets(t *testing.T) {
	o := Options{Prefix: "ow", Window: time.Hour}
	planned, grown := o.buckets(1e6, 2500, 1)/1e6, o.buckets(3e6, 2500, 1)/3e6
	if planned < 9 || planned > 9.2 || grown/planned < 7 || grown/planned > 9 {
		t.Errorf("%.2f bytes a key as planned, %.2f with thrice as many", planned, grown)
	}
}

func TestPlan(t *testing.T) {
	o, err := parse("--rate 2000 --window 24h --dup 5% --key 46")
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	const keys = 1900 * 24 * 3600
	if p.KeysInWindow != keys || p.NewRate != 1900 || len(p.Redis) != 3 || len(p.Bloom) != 2 ||
		len(p.SQL) != 4 {
		t.Fatalf("%+v", p)
	}
	full, compact := p.Redis[0], p.Redis[1]
	if full.Keys != keys || full.Shards != 0 ||
		math.Abs(full.FalseDuplicate/(keys*math.Pow(2, -128))-1) > 1e-9 {
		t.Errorf("full: %+v", full)
	}
	if compact.Keys != 2*keys || compact.ExpectedKeys != int(math.Ceil(keys*1.3)) ||
		compact.Shards != (compact.ExpectedKeys+234)/235 {
		t.Errorf("compact: %+v", compact)
	}
	if odds := 2 * 235 / 1.3 * math.Pow(2, -64); math.Abs(compact.FalseDuplicate/odds-1) > 0.01 {
		t.Errorf("compact is wrong with odds of %g, want %g", compact.FalseDuplicate, odds)
	}
	for _, r := range p.Redis {
		if r.MaxMemory < uint64(1.3*float64(r.Bytes)) {
			t.Errorf("no spare: %+v", r)
		}
	}
	for _, b := range p.Bloom {
		if b.FalsePositives <= 0 || b.FalsePositives > DefaultFalsePositives || b.BytesPerKey < 3 ||
			b.BytesPerKey > 5 {
			t.Errorf("%+v", b)
		}
	}
	if s := p.SQL[1]; s.Retention != "generations" || s.Rows != 2*keys || s.Tables != 2 {
		t.Errorf("%+v", s)
	}
	for engine, rows := range map[int]uint64{0: keys * 5 / 4, 2: keys * 5 / 4, 3: keys} {
		if s := p.SQL[engine]; s.Retention != "deletes" || s.Rows != rows {
			t.Errorf("%+v, want %d rows: DeleteExpired walks over tables without an index by age",
				s, rows)
		}
	}
}

func TestCommand(t *testing.T) {
	var out, errOut bytes.Buffer
	s := &cli.Streams{Out: &out, Err: &errOut}
	run := func(args string) int {
		return cli.Run(t.Context(), s, Command(), strings.Fields(args)...)
	}
	if code := run(needed + "--json"); code != cli.Done ||
		errOut.Len() > 0 {
		t.Fatal(code, errOut.String())
	}
	var p Plan
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil || p.KeysInWindow != 3600_000 {
		t.Errorf("%v, %+v", err, p)
	}
	out.Reset()
	if code := run(needed); code != cli.Done {
		t.Fatal(code, errOut.String())
	}
	for _, want := range []string{"3.6 M keys in a window of 1h", "compact", "MiB",
		"PostgreSQL"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if code := run(""); code != cli.Usage ||
		!strings.HasPrefix(errOut.String(), "onceward plan: --rate") {
		t.Error(code, errOut.String())
	}
}
