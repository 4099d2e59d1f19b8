// Command benchtable puts the tables of results files into docs/benchmarks.md, and those of the filter and of
// what is built on it into docs/front.md, or reports whether they are there.
//
//	benchtable -write      from the folder bench; without -write it only compares
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/report"
)

func main() {
	results := flag.String("results", "results/redis.json,results/kafka.json,results/outbox.json,results/sql.json,results/bloom.json,results/http.json,results/retry.json", "results files")
	page := flag.String("page", "../docs/benchmarks.md", "file with the tables' markers")
	front := flag.String("front", "../docs/front.md", "page with the markers of the tables of the area bloom")
	torture := flag.String("torture", "results/torture.json", "file of long runs under faults; passed over where there is none")
	write := flag.Bool("write", false, "write the table; default: fail if it differs")
	flag.Parse()
	var err error
	for file := range strings.SplitSeq(*results, ",") {
		err = errors.Join(err, run(file, *page, *write, report.Replace))
		if strings.HasSuffix(file, "bloom.json") {
			err = errors.Join(err, run(file, *front, *write, report.ReplaceFront))
		}
	}
	err = errors.Join(err, runTorture(*torture, *page, *write))
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

// run puts the tables of results into a page, with replace.
func run(results, page string, write bool, replace func([]byte, harness.Results) ([]byte, error)) error {
	r, err := harness.Read(results)
	if err != nil {
		return err
	}
	return put(results, page, write, func(old []byte) ([]byte, error) { return replace(old, r) })
}

// runTorture does so for what make torture-owned has left.
func runTorture(results, page string, write bool) error {
	t, err := report.ReadTorture(results)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return put(results, page, write, t.Replace)
}

func put(results, page string, write bool, replace func([]byte) ([]byte, error)) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err := replace(old)
	if err != nil {
		return err
	}
	switch {
	case bytes.Equal(old, text):
		return nil
	case !write:
		return errors.New(page + " does not have the table of " + results + ": make bench-table")
	}
	return os.WriteFile(page, text, 0o644)
}
