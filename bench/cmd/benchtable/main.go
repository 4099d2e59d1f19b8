// Command benchtable puts the tables of results files into the README, or tells whether they
// are there.
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
	results := flag.String("results", "results/redis.json,results/kafka.json,results/outbox.json,results/sql.json,results/bloom.json", "results files")
	readme := flag.String("readme", "../README.md", "file with the table's markers")
	write := flag.Bool("write", false, "write the table; default: fail if it differs")
	flag.Parse()
	for file := range strings.SplitSeq(*results, ",") {
		if err := run(file, *readme, *write); err != nil {
			fmt.Fprintln(os.Stderr, "benchtable:", err)
			os.Exit(1)
		}
	}
}

func run(results, readme string, write bool) error {
	r, err := harness.Read(results)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	text, err := report.Replace(old, r)
	if err != nil {
		return err
	}
	switch {
	case bytes.Equal(old, text):
		return nil
	case !write:
		return errors.New(readme + " does not have the table of " + results + ": make bench-table")
	}
	return os.WriteFile(readme, text, 0o644)
}
