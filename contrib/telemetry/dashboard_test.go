package telemetry_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard is what the test looks at of Grafana's model.
type dashboard struct {
	SchemaVersion int
	UID, Title    string
	Templating    struct {
		List []struct {
			Name, Type, Definition string
			Datasource             source
		}
	}
	Panels []panel
}

type source struct{ Type, UID string }

type panel struct {
	ID          int
	Type, Title string
	Datasource  source
	GridPos     struct{ H, W, X, Y int }
	Panels      []panel
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                source
	}
	MaxDataPoints int
	FieldConfig   struct {
		Defaults struct {
			Unit     string
			Decimals *int
		}
	}
	Options struct {
		GraphMode string
		Legend    struct{ Placement string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.SchemaVersion < 36 || d.UID == "" || d.Title == "" || len(d.Panels) < 20 {
		t.Fatalf("schema %d, %q, %q, %d panels", d.SchemaVersion, d.UID, d.Title, len(d.Panels))
	}
	return d
}

// variables stand for what Grafana puts into an expression.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h")

// Every expression asks for what there is, of the names that were chosen, and its legend names
// labels that the expression keeps.
func TestDashboardExpressions(t *testing.T) {
	metrics, labels := exported(t), values(t)
	named := regexp.MustCompile(`\{\{([^}]*)\}\}`)
	asked := map[string]bool{}
	for _, p := range readDashboard(t).Panels {
		var refs []string
		for _, target := range p.Targets {
			refs = append(refs, target.RefID)
			expr := variables.Replace(target.Expr)
			for _, problem := range problems(expr, metrics, labels) {
				t.Errorf("%s: %s in %s", p.Title, problem, target.Expr)
			}
			selectors := matchers.FindAllString(expr, -1)
			for _, selector := range selectors {
				if !strings.Contains(selector, `onceward_name=~"$name"`) {
					t.Errorf("%s is about names that were not chosen: %s", p.Title, target.Expr)
				}
			}
			found := 0
			for _, word := range words.FindAllString(matchers.ReplaceAllString(expr, ""), -1) {
				if metrics[word] {
					asked[word] = true
					found++
				}
			}
			if found != len(selectors) {
				t.Errorf("%s: %d metrics and %d selectors in %s", p.Title, found, len(selectors),
					target.Expr)
			}
			kept := groupings.FindAllString(expr, -1)
			for _, label := range named.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.ContainsFunc(kept, func(by string) bool {
					return regexp.MustCompile(`\b` + label[1] + `\b`).MatchString(by)
				}) {
					t.Errorf("%s: the legend has %s, which %s drops", p.Title,
						label[1], target.Expr)
				}
			}
		}
		if slices.Sort(refs); len(slices.Compact(slices.Clone(refs))) != len(refs) {
			t.Errorf("%s: targets %v", p.Title, refs)
		}
		if p.Type != "row" && (len(p.Targets) == 0 || p.Title == "") {
			t.Errorf("panel %d, %q, shows nothing", p.ID, p.Title)
		}
	}
	for _, name := range []string{
		"onceward_dedup_claims_total", "onceward_dedup_duplicate_age_seconds_bucket",
		"onceward_dedup_window_seconds", "onceward_dedup_uncertain_total",
		"onceward_dedup_lease_lost_total", "onceward_dedup_store_errors_total",
		"onceward_dedup_failed_open_total", "onceward_dedup_would_skip_total",
		"onceward_dedup_filter_verdicts_total", "onceward_outbox_lag_seconds",
		"onceward_retry_given_up_total", "onceward_redis_amnesia",
	} {
		if !asked[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// The data source is a variable, so that the dashboard can be imported anywhere.
func TestDashboardHasNoSourceOfItsOwn(t *testing.T) {
	d := readDashboard(t)
	want := source{"prometheus", "${datasource}"}
	chosen := map[string]string{}
	for _, v := range d.Templating.List {
		chosen[v.Name] = v.Type
		if v.Type == "query" && (v.Datasource != want ||
			v.Definition != "label_values(onceward_dedup_claims_total, onceward_name)") {
			t.Errorf("the variable %s is %s of %v", v.Name, v.Definition, v.Datasource)
		}
	}
	if chosen["datasource"] != "datasource" || chosen["name"] != "query" {
		t.Errorf("variables: %v", chosen)
	}
	for _, p := range d.Panels {
		if p.Type != "row" && p.Datasource != want {
			t.Errorf("%s: source %v", p.Title, p.Datasource)
		}
		for _, target := range p.Targets {
			if target.Datasource != want {
				t.Errorf("%s: source %v", p.Title, target.Datasource)
			}
		}
	}
}

// Panels have ids of their own, lie on the grid of 24 columns and not on each other.
func TestDashboardLayout(t *testing.T) {
	panels := readDashboard(t).Panels
	for _, problem := range overlaps(panels) {
		t.Error(problem)
	}
	broken := slices.Clone(panels)
	broken[2].ID, broken[4].GridPos = broken[1].ID, broken[3].GridPos
	if found := overlaps(broken); len(found) != 2 {
		t.Errorf("of two mistakes were found: %q", found)
	}
}

// The pictures have shown what is hard to read. The result of increase() is not whole, and a
// quantile lies between bounds. Half of a stat's height is too low for its graph. A legend of a
// dozen names below a panel hides them. A heatmap of as many columns as pixels is stripes.
func TestDashboardCanBeRead(t *testing.T) {
	seen := map[string]int{}
	for _, p := range readDashboard(t).Panels {
		defaults := p.FieldConfig.Defaults
		switch {
		case p.Type == "stat" && defaults.Unit == "short":
			seen["count"]++
			if defaults.Decimals == nil || *defaults.Decimals != 0 {
				t.Errorf("%s: a count has decimals", p.Title)
			}
		case p.Type == "stat" && strings.Contains(p.Targets[0].Expr, "histogram_quantile"):
			seen["share"]++
			if !strings.HasPrefix(p.Targets[0].Expr, "clamp_max(") ||
				!strings.HasSuffix(p.Targets[0].Expr, ", 1)") {
				t.Errorf("%s: more than all of the window", p.Title)
			}
		case p.Type == "heatmap":
			seen["heatmap"]++
			if p.MaxDataPoints < 1 || p.MaxDataPoints > 200 {
				t.Errorf("%s: %d columns", p.Title, p.MaxDataPoints)
			}
		case p.Type == "timeseries" && len(p.Targets) > 3:
			seen["crowded"]++
			if p.Options.Legend.Placement != "right" || p.GridPos.W < 12 {
				t.Errorf("%s: no room for %d series of each name", p.Title, len(p.Targets))
			}
		}
		if p.Type == "stat" && p.Options.GraphMode == "area" && p.GridPos.H < 5 {
			t.Errorf("%s: too low for its graph", p.Title)
		}
	}
	for kind, n := range map[string]int{"count": 4, "share": 1, "heatmap": 1, "crowded": 1} {
		if seen[kind] != n {
			t.Errorf("%d panels are a %s, want %d", seen[kind], kind, n)
		}
	}
}

func overlaps(panels []panel) (found []string) {
	ids := map[int]bool{}
	for i, p := range panels {
		g := p.GridPos
		if ids[p.ID] || p.ID < 1 {
			found = append(found, "an id twice: "+p.Title)
		}
		ids[p.ID] = true
		if g.W < 1 || g.H < 1 || g.X < 0 || g.Y < 0 || g.X+g.W > 24 {
			found = append(found, "not on the grid: "+p.Title)
		}
		for _, other := range panels[:i] {
			o := other.GridPos
			if g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H {
				found = append(found, p.Title+" lies on "+other.Title)
			}
		}
	}
	return found
}
