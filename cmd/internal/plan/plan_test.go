package plan

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
)

const needed = "--rate 1000 --window 1h "

func parse(args string) (o Options, err error) {
	err = cli.Parse(o.command(), strings.Fields(args)...)
	return o, err
}

func TestParseOptions(t *testing.T) {
	o, err := parse("--rate 1000 --window 72h --dup 5% --result 200 --key 46 --spare 0.5 --bloom 1% --origin")
	require.NoError(t, err)
	want := Options{Rate: 1000, Window: 72 * time.Hour, Dup: 0.05, Result: 200, Key: 46, Spare: 0.5,
		FalsePositives: 0.01, Origin: true, Prefix: "ow"}
	assert.Equal(t, want, o)
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
		needed + "--prefix=":                "--prefix is empty",
		needed + "--prefix {x}":             `--prefix has '{' at byte 0`,
		"--rate 0.0001 --window 1s":         "there is nothing to plan",
		"--rate 4000000 --window 1000s":     "up to 4e+09",
		needed + "more":                     `unexpected argument "more"`,
		needed + "-what":                    "unknown shorthand flag",
		"--rate 1000 --window 1h --spare x": "a share is written as 0.05 or 5%",
	} {
		_, err := parse(args)
		assert.ErrorContains(t, err, want, args)
	}
}

// The size classes are from the manual of jemalloc.
func TestAllocated(t *testing.T) {
	for n, want := range map[int]int{
		1: 8, 8: 8, 9: 16, 24: 32, 60: 64, 65: 80, 113: 128, 129: 160, 161: 192, 225: 256,
		257: 320, 513: 640, 3073: 3584, 3584: 3584, 3585: 4096, 14337: 16384,
	} {
		got := allocated(n)
		assert.Equal(t, want, got, "%d bytes take %d, want %d", n, got, want)
	}
}

// A million string keys take as much memory as bench/results/redis.json says.
func TestStrings(t *testing.T) {
	for _, test := range []struct {
		name, value int
		want        float64
	}{{46, 28, 192.78}, {27, 40, 176.78}} {
		got := records(1e6, test.name, test.value) / 1e6
		assert.False(t, math.Abs(got-test.want) > 0.01,
			"a key of %d bytes with %d: %.2f, want %.2f", test.name, test.value, got, test.want)
	}
}

// A bucket that outgrows its array costs eight times as much for each key. redisadapter's comment
// says the same.
func TestOvergrownBuckets(t *testing.T) {
	o := Options{Prefix: "ow", Window: time.Hour}
	planned, grown := o.buckets(1e6, 2500, 1)/1e6, o.buckets(3e6, 2500, 1)/3e6
	assert.False(t, planned < 9, "%.2f bytes a key as planned, %.2f with thrice as many", planned,
		grown)
	assert.False(t, planned > 9.2, "%.2f bytes a key as planned, %.2f with thrice as many",
		planned, grown)
	assert.False(t, grown/planned < 7, "%.2f bytes a key as planned, %.2f with thrice as many",
		planned, grown)
	assert.False(t, grown/planned > 9, "%.2f bytes a key as planned, %.2f with thrice as many",
		planned, grown)
}

func TestPlan(t *testing.T) {
	o, err := parse("--rate 2000 --window 24h --dup 5% --key 46")
	require.NoError(t, err)
	p, err := New(o)
	require.NoError(t, err)
	const keys = 1900 * 24 * 3600
	require.EqualValues(t, keys, p.KeysInWindow)
	require.EqualValues(t, 1900, p.NewRate)
	require.Len(t, p.Redis, 3)
	require.Len(t, p.Bloom, 2)
	require.Len(t, p.SQL, 4)
	full, compact := p.Redis[0], p.Redis[1]
	assert.EqualValues(t, keys, full.Keys, "full: %+v", full)
	assert.Equal(t, 0, full.Shards, "full: %+v", full)
	assert.False(t, math.Abs(full.FalseDuplicate/(keys*math.Pow(2, -128))-1) > 1e-9, "full: %+v",
		full)
	assert.EqualValues(t, 2*keys, compact.Keys, "compact: %+v", compact)
	assert.Equal(t, compact.ExpectedKeys, int(math.Ceil(keys*1.3)), "compact: %+v", compact)
	assert.Equal(t, (compact.ExpectedKeys+234)/235, compact.Shards, "compact: %+v", compact)
	odds := 2 * 235 / 1.3 * math.Pow(2, -64)
	assert.False(t, math.Abs(compact.FalseDuplicate/odds-1) > 0.01,
		"compact is wrong with odds of %g, want %g", compact.FalseDuplicate, odds)
	for _, r := range p.Redis {
		assert.False(t, r.MaxMemory < uint64(1.3*float64(r.Bytes)), "no spare: %+v", r)
	}
	for _, b := range p.Bloom {
		assert.False(t, b.FalsePositives <= 0)
		assert.LessOrEqual(t, b.FalsePositives, DefaultFalsePositives)
		assert.False(t, b.BytesPerKey < 3)
		assert.False(t, b.BytesPerKey > 5)
	}
	s := p.SQL[1]
	assert.Equal(t, "generations", s.Retention)
	assert.EqualValues(t, 2*keys, s.Rows)
	assert.Equal(t, 2, s.Tables)
	for engine, rows := range map[int]uint64{0: keys * 5 / 4, 2: keys * 5 / 4, 3: keys} {
		s := p.SQL[engine]
		assert.Equal(t, "deletes", s.Retention,
			"%+v, want %d rows: DeleteExpired walks over tables without an index by age", s, rows)
		assert.Equal(t, rows, s.Rows,
			"%+v, want %d rows: DeleteExpired walks over tables without an index by age", s, rows)
	}
}

func TestCommand(t *testing.T) {
	var out, errOut bytes.Buffer
	s := &cli.Streams{Out: &out, Err: &errOut}
	run := func(args string) int {
		return cli.Run(t.Context(), s, Command(), strings.Fields(args)...)
	}
	require.Equal(t, cli.Done, run(needed+"--json"))
	require.False(t, errOut.Len() > 0)
	var p Plan
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&p))
	assert.EqualValues(t, 3600_000, p.KeysInWindow)
	out.Reset()
	require.Equal(t, cli.Done, run(needed), errOut.String())
	for _, want := range []string{"3.6 M keys in a window of 1h", "compact", "MiB",
		"PostgreSQL"} {
		assert.Contains(t, out.String(), want, "no %q in\n%s", want, out.String())
	}
	assert.Equal(t, cli.Usage, run(""))
	assert.True(t, strings.HasPrefix(errOut.String(), "onceward plan: --rate"))
}
