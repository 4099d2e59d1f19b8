package telemetry_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// rules are what alerts.yml may have.
type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert       string
			Expr        string
			For         string
			Labels      map[string]string
			Annotations struct {
				Summary    string
				RunbookURL string `yaml:"runbook_url"`
			}
		}
	}
}

// Each rule uses metrics that exist, and links to a page about it. Each page belongs to a rule.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	var all rules
	strict := yaml.NewDecoder(bytes.NewReader(text))
	strict.KnownFields(true)
	require.NoError(t, strict.Decode(&all))
	metrics, labels := exported(t), values(t)
	var names, pages []string
	for _, group := range all.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
			for _, problem := range problems(rule.Expr, metrics, labels) {
				t.Errorf("%s: %s", rule.Alert, problem)
			}
			severity := rule.Labels["severity"]
			assert.Contains(t, []string{"critical", "warning", "info"}, severity,
				"%s has the severity %q", rule.Alert, severity)
			assert.Contains(t, rule.Annotations.Summary, "{{ $labels.onceward_name }}: ",
				"%s does not say whose it is", rule.Alert)
			assert.Contains(t, rule.Expr, "by (onceward_name", "%s does not say whose it is",
				rule.Alert)
			page, absolute := strings.CutPrefix(rule.Annotations.RunbookURL,
				"https://github.com/onceward/onceward/blob/main/")
			pages = append(pages, page)
			runbook, err := os.ReadFile(filepath.Join("..", "..", page))
			if !assert.False(t,
				err != nil || !absolute || !strings.HasPrefix(page,
					"docs/runbooks/"), "%s leads to %s: %v", rule.Alert, page, err) {
				continue
			}
			for _, wanted := range []string{"`" + rule.Alert + "`", "## Meaning",
				"## Diagnosis", "## Remedy", "## Mistakes"} {
				assert.Contains(t, string(runbook), wanted, "%s has no %q", page, wanted)
			}
		}
	}
	for _, list := range [][]string{names, pages} {
		slices.Sort(list)
		assert.GreaterOrEqual(t, len(list), 10, "too few, or one twice")
		assert.Len(t, slices.Compact(slices.Clone(list)), len(list), "too few, or one twice")
	}
	there, err := filepath.Glob("../../docs/runbooks/*.md")
	require.NoError(t, err)
	for _, page := range there {
		_, is := slices.BinarySearch(pages, strings.TrimPrefix(filepath.ToSlash(page), "../../"))
		assert.True(t, is, "%s belongs to no alert", page)
	}
}

// The commands that the pages name exist.
func TestRunbooksNameCommandsThatThereAre(t *testing.T) {
	there, err := filepath.Glob("../../docs/runbooks/*.md")
	require.NoError(t, err)
	n := 0
	for _, page := range there {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, command := range regexp.MustCompile("`onceward ([a-z]+)").FindAllStringSubmatch(
			string(text), -1) {
			n++
			_, err := os.Stat("../../docs/reference/command/" + command[1] + ".md")
			assert.NoError(t, err, "%s names onceward %s, which there is not", page, command[1])
		}
	}
	assert.GreaterOrEqual(t, n, 5, "commands: this test looked in the wrong place")
}

// Each metric and label in the queries of the pages is exported.
func TestRunbooksNameWhatThereIs(t *testing.T) {
	metrics, labels := exported(t), values(t)
	there, err := filepath.Glob("../../docs/runbooks/*.md")
	require.NoError(t, err, "pages")
	require.NotEmpty(t, there, "pages")
	n := 0
	for _, page := range there {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for i, code := range strings.Split(string(text), "`") {
			if i%2 == 0 || !strings.Contains(code, "onceward_") {
				continue
			}
			n++
			name, value, label := strings.Cut(code, "=")
			if _, is := labels[name]; is { // a label, or one with its value
				value = strings.Trim(value, `"`)
				assert.False(t, label && !slices.Contains(labels[name], value),
					"%s: no value %s of %s", page, value, name)
				continue
			}
			for _, problem := range problems(code, metrics, labels) {
				t.Errorf("%s: %s: %s", page, code, problem)
			}
		}
	}
	assert.GreaterOrEqual(t, n, 20, "expressions: this test looked in the wrong place")
}
