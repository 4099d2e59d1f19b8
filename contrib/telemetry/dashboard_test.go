package telemetry_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	require.GreaterOrEqual(t, d.SchemaVersion, 36)
	require.NotEmpty(t, d.UID)
	require.NotEmpty(t, d.Title)
	require.GreaterOrEqual(t, len(d.Panels), 20)
	return d
}

// variables stand for what Grafana puts into an expression.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h")

// Every expression uses metrics that exist, with the chosen names, and its legend names labels that
// the expression keeps.
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
				assert.Contains(t, selector, `onceward_name=~"$name"`,
					"%s is about names that were not chosen: %s", p.Title, target.Expr)
			}
			found := 0
			for _, word := range words.FindAllString(matchers.ReplaceAllString(expr, ""), -1) {
				if metrics[word] {
					asked[word] = true
					found++
				}
			}
			assert.Equal(t, len(selectors), found, "%s: %d metrics and %d selectors in %s", p.Title,
				found, len(selectors), target.Expr)
			kept := groupings.FindAllString(expr, -1)
			for _, label := range named.FindAllStringSubmatch(target.LegendFormat, -1) {
				assert.True(t, slices.ContainsFunc(kept, func(by string) bool {
					return regexp.MustCompile(`\b` + label[1] + `\b`).MatchString(by)
				}), "%s: the legend has %s, which %s drops", p.Title, label[1], target.Expr)
			}
		}
		slices.Sort(refs)
		assert.Len(t, slices.Compact(slices.Clone(refs)), len(refs), "%s: targets %v", p.Title,
			refs)
		assert.False(t, p.Type != "row" && (len(p.Targets) == 0 || p.Title == ""),
			"panel %d, %q, shows nothing", p.ID, p.Title)
	}
	for _, name := range []string{
		"onceward_dedup_claims_total", "onceward_dedup_duplicate_age_seconds_bucket",
		"onceward_dedup_window_seconds", "onceward_dedup_uncertain_total",
		"onceward_dedup_lease_lost_total", "onceward_dedup_store_errors_total",
		"onceward_dedup_failed_open_total", "onceward_dedup_would_skip_total",
		"onceward_dedup_filter_verdicts_total", "onceward_outbox_lag_seconds",
		"onceward_retry_given_up_total", "onceward_redis_amnesia",
	} {
		assert.True(t, asked[name], "no panel shows %s", name)
	}
}

// The data source is a variable, so that the dashboard can be imported anywhere.
func TestDashboardHasNoSourceOfItsOwn(t *testing.T) {
	d := readDashboard(t)
	want := source{"prometheus", "${datasource}"}
	chosen := map[string]string{}
	for _, v := range d.Templating.List {
		chosen[v.Name] = v.Type
		assert.False(t,
			v.Type == "query" && (v.Datasource != want ||
				v.Definition != "label_values(onceward_dedup_claims_total, onceward_name)"),
			"the variable %s is %s of %v", v.Name, v.Definition, v.Datasource)
	}
	assert.Equal(t, "datasource", chosen["datasource"], "variables: %v", chosen)
	assert.Equal(t, "query", chosen["name"], "variables: %v", chosen)
	for _, p := range d.Panels {
		assert.False(t, p.Type != "row" && p.Datasource != want, "%s: source %v", p.Title,
			p.Datasource)
		for _, target := range p.Targets {
			assert.Equal(t, want, target.Datasource, "%s: source", p.Title)
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
	assert.Len(t, overlaps(broken), 2, "of two mistakes were found")
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
			if assert.NotNil(t, defaults.Decimals, "%s: a count has decimals", p.Title) {
				assert.Zero(t, *defaults.Decimals, "%s: a count has decimals", p.Title)
			}
		case p.Type == "stat" && strings.Contains(p.Targets[0].Expr, "histogram_quantile"):
			seen["share"]++
			assert.False(t,
				!strings.HasPrefix(p.Targets[0].Expr,
					"clamp_max(") || !strings.HasSuffix(p.Targets[0].Expr, ", 1)"),
				"%s: more than all of the window", p.Title)
		case p.Type == "heatmap":
			seen["heatmap"]++
			assert.GreaterOrEqual(t, p.MaxDataPoints, 1, "%s: columns", p.Title)
			assert.LessOrEqual(t, p.MaxDataPoints, 200, "%s: columns", p.Title)
		case p.Type == "timeseries" && len(p.Targets) > 3:
			seen["crowded"]++
			assert.Equal(t, "right", p.Options.Legend.Placement,
				"%s: no room for %d series of each name", p.Title, len(p.Targets))
			assert.GreaterOrEqual(t, p.GridPos.W, 12, "%s: no room for %d series of each name",
				p.Title, len(p.Targets))
		}
		assert.False(t, p.Type == "stat" && p.Options.GraphMode == "area" && p.GridPos.H < 5,
			"%s: too low for its graph", p.Title)
	}
	for kind, n := range map[string]int{"count": 4, "share": 1, "heatmap": 1, "crowded": 1} {
		assert.Equal(t, n, seen[kind], "%d panels are a %s", seen[kind], kind)
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
