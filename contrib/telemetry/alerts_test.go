package telemetry_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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

// Each rule asks for what there is, and leads to a page that is about it; each page belongs to a
// rule.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var all rules
	strict := yaml.NewDecoder(bytes.NewReader(text))
	strict.KnownFields(true)
	if err := strict.Decode(&all); err != nil {
		t.Fatal(err)
	}
	metrics, labels := exported(t), values(t)
	var names, pages []string
	for _, group := range all.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
			for _, problem := range problems(rule.Expr, metrics, labels) {
				t.Errorf("%s: %s", rule.Alert, problem)
			}
			if severity := rule.Labels["severity"]; !slices.Contains([]string{"critical",
				"warning", "info"}, severity) {
				t.Errorf("%s has the severity %q", rule.Alert, severity)
			}
			if !strings.Contains(rule.Annotations.Summary, "{{ $labels.onceward_name }}: ") ||
				!strings.Contains(rule.Expr, "by (onceward_name") {
				t.Errorf("%s does not say whose it is", rule.Alert)
			}
			page, absolute := strings.CutPrefix(rule.Annotations.RunbookURL,
				"https://github.com/onceward/onceward/blob/main/")
			pages = append(pages, page)
			runbook, err := os.ReadFile(filepath.Join("..", "..", page))
			if err != nil || !absolute || !strings.HasPrefix(page, "docs/runbooks/") {
				t.Errorf("%s leads to %s: %v", rule.Alert, page, err)
				continue
			}
			for _, wanted := range []string{"`" + rule.Alert + "`", "## Meaning",
				"## Diagnosis", "## Remedy", "## Mistakes"} {
				if !strings.Contains(string(runbook), wanted) {
					t.Errorf("%s has no %q", page, wanted)
				}
			}
		}
	}
	for _, list := range [][]string{names, pages} {
		slices.Sort(list)
		if len(list) < 10 || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Errorf("too few, or one twice: %v", list)
		}
	}
	there, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range there {
		if _, is := slices.BinarySearch(pages,
			strings.TrimPrefix(filepath.ToSlash(page), "../../")); !is {
			t.Errorf("%s belongs to no alert", page)
		}
	}
}

// The commands that the pages name are there.
func TestRunbooksNameCommandsThatThereAre(t *testing.T) {
	there, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, page := range there {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range regexp.MustCompile("`onceward ([a-z]+)").FindAllStringSubmatch(
			string(text), -1) {
			n++
			if _, err := os.Stat("../../docs/reference/command/" + command[1] + ".md"); err != nil {
				t.Errorf("%s names onceward %s, which there is not", page, command[1])
			}
		}
	}
	if n < 5 {
		t.Errorf("%d commands: this test looked in the wrong place", n)
	}
}

// Each metric and label in the queries of the pages is exported.
func TestRunbooksNameWhatThereIs(t *testing.T) {
	metrics, labels := exported(t), values(t)
	there, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil || len(there) == 0 {
		t.Fatalf("%d pages: %v", len(there), err)
	}
	n := 0
	for _, page := range there {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, code := range strings.Split(string(text), "`") {
			if i%2 == 0 || !strings.Contains(code, "onceward_") {
				continue
			}
			n++
			name, value, label := strings.Cut(code, "=")
			if _, is := labels[name]; is { // a label, or one with its value
				if value = strings.Trim(value, `"`); label &&
					!slices.Contains(labels[name], value) {
					t.Errorf("%s: no value %s of %s", page, value, name)
				}
				continue
			}
			for _, problem := range problems(code, metrics, labels) {
				t.Errorf("%s: %s: %s", page, code, problem)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d expressions: this test looked in the wrong place", n)
	}
}
