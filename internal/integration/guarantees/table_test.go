// Package guarantees_test compares the table of guarantees (docs/guarantees.md) with the code.
// Every promise, and every way in which an effect can run twice, is a test of its own, whose name
// is the sentence of the table. A documented exception that no longer happens fails its test,
// like a broken promise.
//
// It also runs one message through a fault at every request that its life sends to the store.
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// row is a line of the table: its promises, and the cases in which an effect can still run twice.
// The names are the sentences of its cells.
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

// TestGuarantee runs the tests of the table. It fails for a sentence that has no test, and for a
// test that has no sentence.
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
			require.True(t, ok, "docs/guarantees.md says %q, and no test shows it", sentence)
			test(t)
		})
	}
	for sentence := range shown {
		assert.Contains(t, said, sentence,
			"a test shows a sentence that docs/guarantees.md does not say")
	}
}

// line is a line of the table, as text.
type line struct {
	promise, exceptions []string
}

// readTable reads the table from docs/guarantees.md, its only copy.
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

// split splits a cell into its sentences.
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

// If the table were read wrongly, every test of it could pass.
func TestParseTable(t *testing.T) {
	table := parseTable(
		"\ntext\n\n| level | composition | promise | when |\n|---|---|---|---|\n| A | a cell | one; two, too. `A.B` three | never |\n\n| no | table |\n")
	assert.Equal(t, "map[A:{[one two, too `A.B` three] [never]}]", fmt.Sprint(table), "read")
}
