package others_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	resultsFile = "../../../bench/results/torture-others.json"
	page        = "../../../docs/evidence/others.md"
	begins      = "<!-- table of bench/results/torture-others.json: make torture-others -->\n"
	ends        = "<!-- end of table -->\n"
)

// The page has the tables of the recorded results, and the results have every row. After a full run
// the test writes the page.
func TestPage(t *testing.T) {
	name := os.Getenv(resultsEnv)
	write := name != ""
	if !write {
		name = resultsFile
	}
	results, err := readFile(name)
	require.NoError(t, err)
	for _, s := range scenarios {
		for _, r := range rivals {
			assert.False(t, s.applies(r) && results.row(s, r) == nil,
				"there is no row of %q over %q: make torture-others", s.name, r.name)
		}
	}
	old, err := os.ReadFile(page)
	require.NoError(t, err)
	text, err := withTables(old, results)
	switch {
	case err != nil:
		t.Fatal(err)
	case bytes.Equal(old, text):
	case !write:
		t.Errorf("%s does not have the tables of %s: make torture-others", page, resultsFile)
	default:
		require.NoError(t, os.WriteFile(page, text, 0o644))
	}
}

// withTables returns the page with the tables of the results between its marks.
func withTables(old []byte, results file) ([]byte, error) {
	before, rest, found := bytes.Cut(old, []byte(begins))
	_, after, closed := bytes.Cut(rest, []byte(ends))
	if !found || !closed {
		return nil, fmt.Errorf("%s has no place for the tables", page)
	}
	return slices.Concat(before, []byte(begins), []byte("\n"+results.tables()+"\n"), []byte(ends),
		after), nil
}

func (f *file) row(s *scenario, r *rival) *row {
	at := slices.IndexFunc(f.Rows, func(o row) bool {
		return o.Scenario == s.name && o.Rival == r.name
	})
	if at < 0 {
		return nil
	}
	return &f.Rows[at]
}

// tables has a line for each rival and a column for each scenario. It makes two tables, because
// one would be too wide.
func (f *file) tables() string {
	var b strings.Builder
	var versions []string
	for name, version := range f.Versions {
		versions = append(versions, name+" "+version)
	}
	slices.Sort(versions)
	fmt.Fprintf(&b, "Commit %s, %s, %s; %s.\n", f.Commit, f.Date,
		f.Machine, strings.Join(versions, ", "))
	for _, part := range [][]*scenario{scenarios[:len(scenarios)/2], scenarios[len(scenarios)/2:]} {
		b.WriteString("\n| |")
		for _, s := range part {
			fmt.Fprintf(&b, " %s%s |", s.name, f.done(s))
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(part)) + "\n")
		for _, r := range rivals {
			fmt.Fprintf(&b, "| %s%s |", r.name, f.version(r))
			for _, s := range part {
				fmt.Fprintf(&b, " %s |", f.row(s, r).cell())
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// version is that of a library. For recipes it names go-redis and pgx, and for our library the
// commit.
func (f *file) version(r *rival) string {
	o := f.row(scenarios[0], r)
	if o == nil || r.module == goRedis || r.module == pgxModule || r.module == ours {
		return ""
	}
	return " " + o.Version
}

// done describes how often a fault happened in a scenario, from the smallest number to the
// largest.
func (f *file) done(s *scenario) string {
	fewest, most, what := 0, 0, ""
	for _, r := range rivals {
		o := f.row(s, r)
		if o == nil {
			continue
		}
		for name, n := range o.Faults {
			if name == "stalls" {
				continue
			}
			if what == "" || n < fewest {
				fewest = n
			}
			most, what = max(most, n), name
		}
	}
	switch {
	case what == "":
		return ""
	case fewest == most:
		return fmt.Sprintf(" (%d %s)", most, what)
	}
	return fmt.Sprintf(" (%d to %d %s)", fewest, most, what)
}

// cell has the counts of a row that are not zero, in bold if the rival's own documentation
// promises zero.
func (r *row) cell() string {
	if r == nil {
		return "–"
	}
	var all []string
	for _, c := range []struct {
		name string
		n    int
	}{{"lost", r.Lost}, {"doubled", r.Doubled}, {"stuck", r.Stuck}} {
		if c.n == 0 {
			continue
		}
		text := fmt.Sprintf("%d %s", c.n, c.name)
		if slices.Contains(r.Promised, c.name) {
			text = "**" + text + "**"
		}
		all = append(all, text)
	}
	if r.Faults["stalls"] > 0 { // in all three tries
		all = append(all, "(the machine was busy)")
	}
	if len(all) == 0 {
		return "0"
	}
	return strings.Join(all, ", ")
}

// The page shows every count that is not zero, in bold if zero was promised.
func TestTables(t *testing.T) {
	f := file{Rows: []row{
		{Scenario: scenarios[0].name, Rival: rivals[0].name, Lost: 3, Doubled: 4, Stuck: 5,
			Promised: []string{"doubled"}, Faults: map[string]int{"kills": 7}},
		{Scenario: scenarios[0].name, Rival: rivals[1].name, Faults: map[string]int{"kills": 9}},
		{Scenario: scenarios[0].name, Rival: rivals[2].name, Lost: 1,
			Faults: map[string]int{"stalls": 1}},
	}}
	for row, want := range map[int]string{0: "3 lost, **4 doubled**, 5 stuck",
		1: "0", 2: "1 lost, (the machine was busy)", 3: "–"} {
		assert.Equal(t, want, f.row(scenarios[0], rivals[row]).cell())
	}
	assert.Equal(t, " (7 to 9 kills)", f.done(scenarios[0]), "done")
	text, err := withTables([]byte("a\n"+begins+"old\n"+ends+"b\n"), f)
	if assert.NoError(t, err, "%q", text) {
		assert.True(t, bytes.HasPrefix(text, []byte("a\n"+begins)), "%q, %v", text, err)
		assert.True(t, bytes.HasSuffix(text, []byte(ends+"b\n")), "%q, %v", text, err)
		assert.False(t, bytes.Contains(text, []byte("old")), "%q, %v", text, err)
	}
	_, err = withTables([]byte("a"), f)
	assert.Error(t, err, "a page without marks was accepted")
}
