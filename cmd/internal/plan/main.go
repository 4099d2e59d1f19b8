package plan

import (
	"context"
	"fmt"
	"time"

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
		p.Rate, p.NewRate, count(p.KeysInWindow),
		cli.Span(time.Duration(p.WindowMS)*time.Millisecond))); err != nil {
		return err
	}
	var redis, bloom, sql [][]string
	for _, r := range p.Redis {
		expected, shards := "-", "-"
		if r.ExpectedKeys > 0 {
			expected, shards = fmt.Sprint(r.ExpectedKeys), fmt.Sprint(r.Shards)
		}
		redis = append(redis, []string{r.Layout, r.Keeps, fmt.Sprintf("%.1f", r.BytesPerKey),
			count(r.Keys), size(r.Bytes), size(r.MaxMemory), expected, shards,
			odds(r.FalseDuplicate), odds(r.FalsePerYear)})
	}
	for _, b := range p.Bloom {
		bloom = append(bloom, []string{b.Kind, size(b.Bytes), fmt.Sprintf("%.1f", b.BytesPerKey),
			fmt.Sprint(b.Generations), fmt.Sprint(b.Hashes), odds(b.FalsePositives)})
	}
	for _, t := range p.SQL {
		sql = append(sql, []string{t.Engine, t.Retention, fmt.Sprint(t.Tables), count(t.Rows),
			fmt.Sprintf("%.0f", t.BytesPerKey), size(t.Bytes)})
	}
	for _, table := range []struct {
		head []string
		rows [][]string
	}{
		{[]string{"Redis", "keeps of a key", "bytes a key", "keys at most", "bytes",
			fmt.Sprintf("maxmemory (+%.0f %%)", p.Spare*100), "ExpectedKeys", "shards",
			"a new key taken for done", "in a year"}, redis},
		{[]string{"Bloom filter", "bytes a process", "bytes a key", "generations", "hashes",
			"new keys taken for known"}, bloom},
		{[]string{"SQL, marks", "retention", "tables", "rows at most", "bytes a row",
			"bytes"}, sql},
	} {
		fmt.Fprintln(s.Out)
		if err := s.Table(table.head, table.rows); err != nil {
			return err
		}
	}
	return nil
}

// odds formats odds. The layout that is only for comparison has no odds.
func odds(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1e", v)
}

func size(bytes uint64) string { return cli.Size(float64(bytes)) }

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
