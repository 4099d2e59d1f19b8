// Package guarantees_test compares the table of guarantees (docs/guarantees.md) with the code:
// every promise and every way in which an effect can run twice is a test of its own, named by the
// very words of the table. An exception that no longer happens is as wrong there as a promise that
// is not kept.
//
// It also takes one message's life through a fault at every request that it makes of its store.
package guarantees_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// row is a line of the table: what is promised, and when an effect can run twice all the same. The
// names are the sentences of its cells.
type row struct {
	holds, doubles map[string]func(t *testing.T)
}

var rows = map[string]row{
	"Skip":     skipRow,
	"Claimed":  claimedRow,
	"Asked":    askedRow,
	"Atomic":   atomicRow,
	"Streamed": streamedRow,
}

// TestGuarantee runs what the table says, and fails for what it says and nobody shows, and for what
// is shown and it does not say.
func TestGuarantee(t *testing.T) {
	table := readTable(t)
	for _, level := range union(table, rows) {
		t.Run(level, func(t *testing.T) {
			said, shown := table[level], rows[level]
			t.Run("holds", func(t *testing.T) { sentences(t, said.promise, shown.holds) })
			t.Run("doubles", func(t *testing.T) { sentences(t, said.exceptions, shown.doubles) })
		})
	}
}

// sentences runs the test of each sentence.
func sentences(t *testing.T, said []string, shown map[string]func(*testing.T)) {
	for _, sentence := range said {
		test, ok := shown[sentence]
		t.Run(sentence, func(t *testing.T) {
			if !ok {
				t.Fatalf("docs/guarantees.md says %q, and no test shows it", sentence)
			}
			test(t)
		})
	}
	for sentence := range shown {
		if !slices.Contains(said, sentence) {
			t.Errorf("a test shows %q, which docs/guarantees.md does not say", sentence)
		}
	}
}

// line is a line of the table as it is written.
type line struct {
	promise, exceptions []string
}

// readTable reads the table from its only copy.
func readTable(t *testing.T) map[string]line {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "guarantees.md"))
	require.NoError(t, err)
	table := parseTable(string(text))
	require.NotEmpty(t, table, "docs/guarantees.md has no table of guarantees")
	return table
}

func parseTable(section string) map[string]line {
	table := map[string]line{}
	for text := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(text), "|"), "|")
		level := strings.TrimSpace(cells[0])
		if len(cells) != 4 || level == "level" || strings.HasPrefix(level, "---") {
			continue
		}
		table[level] = line{promise: split(cells[2]), exceptions: split(cells[3])}
	}
	return table
}

var sentenceEnd = regexp.MustCompile(`;|\. `)

// split makes sentences of a cell.
func split(cell string) (sentences []string) {
	for _, sentence := range sentenceEnd.Split(cell, -1) {
		sentences = append(sentences, strings.TrimSpace(sentence))
	}
	return sentences
}

func union(table map[string]line, rows map[string]row) []string {
	all := slices.Sorted(maps.Keys(table))
	for level := range rows {
		if _, ok := table[level]; !ok {
			all = append(all, level)
		}
	}
	return all
}

// A table that is read wrongly would make every test of it pass.
func TestParseTable(t *testing.T) {
	table := parseTable(
		"\ntext\n\n| level | composition | promise | when |\n|---|---|---|---|\n| A | a cell | one; two, too. `A.B` three | never |\n\n| no | table |\n")
	if got := fmt.Sprint(table); got != "map[A:{[one two, too `A.B` three] [never]}]" {
		t.Errorf("read %s", got)
	}
}
