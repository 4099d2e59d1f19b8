package plan

import (
	"context"
	"fmt"

	"github.com/onceward/onceward/cmd/internal/cli"
)

func (o *Options) run(_ context.Context, s *cli.Streams) error {
	p, err := New(*o)
	if err != nil {
		return err
	}
	if o.JSON {
		return cli.WriteJSON(s.Out, p)
	}
	return p.print(s)
}

// print writes tables for people.
func (p *Plan) print(s *cli.Streams) error {
	if err := s.Lines(0, fmt.Sprintf(
		"%.6g messages a second, of them %.6g new keys: %s keys in a window of %s",
		p.Rate, p.NewRate, count(p.KeysInWindow), cli.Span(window(p.WindowMS)))); err != nil {
		return err
	}
	for _, table := range [][][]string{p.redis(), p.bloom(), p.sql()} {
		fmt.Fprintln(s.Out)
		if err := s.Table(table[0], table[1:]); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) redis() [][]string {
	rows := [][]string{{"Redis", "keeps of a key", "bytes a key", "keys at most", "bytes",
		fmt.Sprintf("maxmemory (+%.0f %%)", p.Spare*100), "ExpectedKeys", "shards",
		"a new key taken for done", "in a year"}}
	for _, r := range p.Redis {
		expected, shards := "-", "-"
		if r.ExpectedKeys > 0 {
			expected, shards = fmt.Sprint(r.ExpectedKeys), fmt.Sprint(r.Shards)
		}
		rows = append(rows, []string{r.Layout, r.Keeps, fmt.Sprintf("%.1f", r.BytesPerKey),
			count(r.Keys), cli.Size(float64(r.Bytes)), cli.Size(float64(r.MaxMemory)), expected,
			shards,
			odds(r.FalseDuplicate), odds(r.FalsePerYear)})
	}
	return rows
}

func (p *Plan) bloom() [][]string {
	rows := [][]string{{"Bloom filter", "bytes a process", "bytes a key", "generations", "hashes",
		"new keys taken for known"}}
	for _, b := range p.Bloom {
		rows = append(rows, []string{b.Kind, cli.Size(float64(b.Bytes)), fmt.Sprintf("%.1f",
			b.BytesPerKey),
			fmt.Sprint(b.Generations), fmt.Sprint(b.Hashes), odds(b.FalsePositives)})
	}
	return rows
}

func (p *Plan) sql() [][]string {
	rows := [][]string{{"SQL, marks", "retention", "tables", "rows at most", "bytes a row",
		"bytes"}}
	for _, s := range p.SQL {
		rows = append(rows, []string{s.Engine, s.Retention, fmt.Sprint(s.Tables), count(s.Rows),
			fmt.Sprintf("%.0f", s.BytesPerKey), cli.Size(float64(s.Bytes))})
	}
	return rows
}

// odds formats odds. The layout that is only for comparison has no odds.
func odds(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1e", v)
}

// count formats a number of keys or rows.
func count(n uint64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f G", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", float64(n)/1e6)
	}
	return fmt.Sprint(n)
}
