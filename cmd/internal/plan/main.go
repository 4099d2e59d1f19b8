package plan

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
)

// Exit codes of Main.
const (
	// ExitDone: the plan is written.
	ExitDone = 0
	// ExitFailed: it could not be written.
	ExitFailed = 1
	// ExitUsage: wrong flags.
	ExitUsage = 2
)

// Main plans with the command's flags and returns an exit code.
func Main(args []string, out, errOut io.Writer) int {
	fail := func(code int, err error) int {
		fmt.Fprintf(errOut, "onceward plan: %v\n", err)
		return code
	}
	o, err := ParseOptions(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return ExitDone
	}
	if err != nil {
		return fail(ExitUsage, err)
	}
	p, err := New(o)
	if err != nil {
		return fail(ExitUsage, err)
	}
	if o.JSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		err = e.Encode(p)
	} else {
		err = p.print(out)
	}
	if err != nil {
		return fail(ExitFailed, err)
	}
	return ExitDone
}

// print writes tables for people.
func (p *Plan) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%.6g messages a second, of them %.6g new keys: %s keys in a window of %v\n",
		p.Rate, p.NewRate, count(p.KeysInWindow), window(p.WindowMS))
	fmt.Fprintf(w, "\nRedis\tkeeps of a key\tbytes a key\tkeys at most\tbytes\tmaxmemory (+%.0f %%)\tExpectedKeys\tshards\ta new key taken for done\tin a year\n", p.Spare*100)
	for _, r := range p.Redis {
		expected, shards := "-", "-"
		if r.ExpectedKeys > 0 {
			expected, shards = fmt.Sprint(r.ExpectedKeys), fmt.Sprint(r.Shards)
		}
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Layout,
			r.Keeps, r.BytesPerKey, count(r.Keys), size(r.Bytes),
			size(r.MaxMemory), expected, shards, odds(r.FalseDuplicate), odds(r.FalsePerYear))
	}
	fmt.Fprint(w, "\nBloom filter\tbytes a process\tbytes a key\tgenerations\thashes\tnew keys it does not know for new\n")
	for _, b := range p.Bloom {
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%d\t%d\t%s\n", b.Kind, size(b.Bytes), b.BytesPerKey,
			b.Generations, b.Hashes, odds(b.FalsePositives))
	}
	fmt.Fprint(w, "\nSQL, marks\tretention\ttables\trows at most\tbytes a row\tbytes\n")
	for _, s := range p.SQL {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%.0f\t%s\n", s.Engine, s.Retention, s.Tables, count(s.Rows),
			s.BytesPerKey, size(s.Bytes))
	}
	return w.Flush()
}

// odds are in short; none for a comparison.
func odds(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1e", v)
}

// size is in the unit in which it has some digits.
func size(n uint64) string {
	const unit = 1024
	v, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for ; v >= unit && i < len(units)-1; i++ {
		v /= unit
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// count is a number of keys or rows.
func count(n uint64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f G", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", float64(n)/1e6)
	}
	return fmt.Sprint(n)
}
