package arch

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// threats is how many docs/reference/security.md has: S-1 to S-23.
const threats = 23

var (
	threatRow  = regexp.MustCompile(`^\| S-(\d+) \|`)
	testInText = regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]+)`")
)

// TestSecurityPage holds docs/reference/security.md to what there is: each threat has its row, each
// row names tests, and each test that is named exists. Otherwise it would become outdated, and
// still promise.
func TestSecurityPage(t *testing.T) {
	root := modules(t)[module]
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "security.md"))
	require.NoError(t, err)
	for _, fault := range pageFaults(string(page), func(dir, name string) bool {
		return hasTest(t, filepath.Join(root, dir), name)
	}) {
		t.Error(fault)
	}
}

// pageFaults returns what is wrong with the text of the page.
func pageFaults(page string, exists func(dir, name string) bool) []string {
	var found []string
	rows := map[int]bool{}
	for line := range strings.Lines(page) {
		named := testInText.FindAllStringSubmatch(line, -1)
		for _, test := range named {
			if !exists(test[1], test[2]) {
				found = append(found, fmt.Sprintf("there is no %s in %s", test[2], test[1]))
			}
		}
		row := threatRow.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		n, _ := strconv.Atoi(row[1])
		if rows[n] {
			found = append(found, fmt.Sprintf("S-%d has two rows", n))
		}
		if rows[n] = true; len(named) == 0 {
			found = append(found, fmt.Sprintf("S-%d names no test", n))
		}
	}
	for n := 1; n <= threats; n++ {
		if !rows[n] {
			found = append(found, fmt.Sprintf("S-%d has no row", n))
		}
	}
	return found
}

// hasTest reports whether a test file of the directory declares the function.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^func ` + name + `\(`)
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return declared.Match(text)
	})
}

func TestFaultsOfThePageAreSeen(t *testing.T) {
	var whole strings.Builder
	for n := 1; n <= threats; n++ {
		fmt.Fprintf(&whole, "| S-%d | a threat | `dedup.TestThere` |\n", n)
	}
	exists := func(dir, name string) bool { return dir == "dedup" && name == "TestThere" }
	for name, c := range map[string]struct{ from, to, want string }{
		"whole": {"", "", ""},
		"no test": {"| S-7 | a threat | `dedup.TestThere` |", "| S-7 | a threat | |",
			"S-7 names no test"},
		"gone": {"| S-7 | a threat | `dedup.TestThere` |",
			"| S-7 | a threat | `dedup.TestGone` |", "there is no TestGone in dedup"},
		"no row": {"| S-21 |", "| X-21 |", "S-21 has no row"},
		"elsewhere": {"| S-1 | a threat | `dedup.TestThere` |",
			"| S-1 | a threat | `lease.TestThere` |", "there is no TestThere in lease"},
	} {
		page := strings.Replace(whole.String(), c.from, c.to, 1)
		assert.Equal(t, c.want, strings.Join(pageFaults(page, exists), "\n"), name)
	}
}

// unsafeCodecs make values, or code, of bytes that somebody else may have written.
var unsafeCodecs = []string{"encoding/gob", "encoding/xml", "net/rpc", "plugin", "text/template",
	"html/template"}

// S-12: stores hold bytes of a format of our own, or JSON. The console's templates are embedded,
// and stored values come into them as data.
func TestS12NoUnsafeCodecs(t *testing.T) {
	for _, p := range shippedPackages(t) {
		name, _ := rel(p.ImportPath)
		if table[name].role != shipped {
			continue
		}
		for _, imp := range p.Imports {
			assert.False(t, slices.Contains(unsafeCodecs, imp) &&
				(name != "console" || imp != "html/template"), "%s imports %s", name, imp)
		}
	}
}

// S-17: a signature that is compared byte by byte reveals how much of it was right. In the packages
// that check them nothing but hmac.Equal compares bytes, and crypto/subtle would do as well.
func TestS17SignaturesAreComparedInConstantTime(t *testing.T) {
	equals := 0
	for _, f := range parse(t, filepath.Join(modules(t)[module], "httpadapter", "webhook")) {
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := s.X.(*ast.Ident)
			switch {
			case !ok:
			case x.Name == "hmac" && s.Sel.Name == "Equal":
				equals++
			case x.Name == "bytes" && (s.Sel.Name == "Equal" || s.Sel.Name == "Compare"),
				x.Name == "slices" && s.Sel.Name == "Equal", x.Name == "reflect":
				t.Errorf("%s: %s.%s takes as long as its arguments agree", f.Name, x.Name,
					s.Sel.Name)
			}
			return true
		})
	}
	assert.NotZero(t, equals,
		"nothing is compared by hmac.Equal: this test looked in the wrong place")
}

// direct are the modules that the root module requires by itself. One more is one more that has to
// be watched for as long as there are users.
var direct = []string{sarama, miniredis, bits, goRedis, testify}

// leastPgx is the first pgx without the injection of GHSA-j38q-h3ph-jjpq.
var leastPgx = [3]int{5, 12, 0}

// S-10, S-21: few dependencies, none by a replace that users would not get, and no pgx with a known
// injection.
func TestS21DependenciesAreFew(t *testing.T) {
	seen := 0
	for path, dir := range modules(t) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		require.NoError(t, err)
		for _, fault := range requireFaults(string(text), path == module) {
			t.Errorf("%s: %s", path, fault)
		}
		seen += strings.Count(string(text), pgx+" v")
	}
	assert.NotZero(t, seen, "no module requires pgx: this test looked in the wrong place")
}

var requireLine = regexp.MustCompile(
	`^\s*(?:require )?([a-zA-Z0-9.-]+\.[a-z]+/\S+) v(\d+)\.(\d+)\.(\d+)\S*( // indirect)?`)

// requireFaults returns what is wrong with a go.mod.
func requireFaults(mod string, root bool) []string {
	var found []string
	for line := range strings.Lines(mod) {
		m := requireLine.FindStringSubmatch(line)
		if m == nil {
			if root && strings.HasPrefix(line, "replace") {
				found = append(found, "it has a replace, which users do not get")
			}
			continue
		}
		if root && m[5] == "" && !slices.Contains(direct, m[1]) {
			found = append(found, "it requires "+m[1])
		}
		var version [3]int
		for i := range version {
			version[i], _ = strconv.Atoi(m[2+i])
		}
		if m[1] == pgx && slices.Compare(version[:], leastPgx[:]) < 0 {
			found = append(found, "its pgx has a known injection: "+strings.TrimSpace(line))
		}
	}
	return found
}

func TestRequireFaultsAreSeen(t *testing.T) {
	const head = "module x\n\ngo 1.26.0\n\nrequire (\n"
	for mod, want := range map[string]int{
		"\t" + goRedis + " v9.23.0\n": 0, "\t" + pgx + " v5.12.0\n": 1,
		"\t" + pgx + " v5.11.9 // indirect\n": 1, "\t" + pgx + " v5.11.9\n": 2,
		"\tgithub.com/google/uuid v1.0.0 // indirect\n": 0, "\tgithub.com/google/uuid v1.0.0\n": 1,
		")\nreplace a => b\n": 1,
	} {
		assert.Len(t, requireFaults(head+mod, true), want, mod)
	}
}
