//go:build browser

// Package dashboard_test gives contrib/telemetry/dashboard.json data to show: a service that works
// and has some failures, a Prometheus that scrapes it, and the answers of that Prometheus to each
// expression.
package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/integration/internal/demo"
	"github.com/onceward/onceward/internal/servertest"
)

const (
	dashboardFile = "../../../contrib/telemetry/dashboard.json"
	// answersEnv and demoAnswersEnv name the files that the answers are written to;
	// scripts/dashboard draws them.
	answersEnv     = "ONCEWARD_DASHBOARD_ANSWERS"
	demoAnswersEnv = "ONCEWARD_DASHBOARD_DEMO_ANSWERS"
	step           = time.Second
)

// answers is the input of the page that draws the dashboard.
type answers struct {
	Start    int64                      `json:"start"` // seconds
	End      int64                      `json:"end"`
	Steps    map[int]int64              `json:"steps"` // by panel
	Names    []string                   `json:"names"`
	Matrices map[string]json.RawMessage `json:"matrices"` // by "panel/refId"
}

type dashboard struct {
	Panels []panel
}

type panel struct {
	ID            int
	Title         string
	MaxDataPoints int64
	Targets       []struct{ RefID, Expr string }
}

// interval returns how many seconds Grafana leaves between two points of a panel: the time range
// divided by the number of points, rounded as Grafana rounds, and at least the scrape interval.
func (p *panel) interval(seconds int64) int64 {
	const wide = 500 // about the pixels of a panel, the default number of points
	points := p.MaxDataPoints
	if points == 0 {
		points = wide
	}
	exact := float64(seconds) / float64(points)
	for _, nice := range []struct {
		below float64
		is    int64
	}{{1.5, 1}, {3.5, 2}, {7.5, 5}, {12.5, 10}, {17.5, 15}, {25, 20}} {
		if exact < nice.below {
			return nice.is
		}
	}
	return 30
}

// A service runs for five minutes, and every expression of the dashboard has data. Rare events,
// such as a Redis that has lost everything, happen when the plan says so.
func TestBrowserDashboardHasData(t *testing.T) {
	d := readDashboard(t)
	s := newService(t)
	p := prometheus{t, servertest.Prometheus(t,
		map[string]string{"prometheus.yml": scrapeConfig(s.targets)})}
	p.awaitUp(len(s.targets))
	began := time.Now().Truncate(step).Add(step)
	s.run(began)
	for _, q := range p.answer(d, began, answersEnv) {
		assert.NotZero(t, q.numbers, "%q has no data: %s", q.title, q.expr)
	}
}

// Each composition of the demo runs for two minutes. It has neither filter nor outbox, no retries
// and no uncertain keys.
func TestBrowserDashboardOfDemo(t *testing.T) {
	d := readDashboard(t)
	run := demo.Start(t, "--takes", "2m", "--messages", "3000")
	p := prometheus{t, servertest.Prometheus(t,
		map[string]string{"prometheus.yml": scrapeConfig([]string{run.Host})})}
	p.awaitUp(1)
	began := time.Now().Truncate(step).Add(step)
	run.Await("The console stays")
	want := map[string]bool{
		"Duplicates": true, "Age against the window": true, "Claims by outcome": true,
		"Duplicates by cause": true, "Ends of attempts": true,
		"Answered by this process": true, "Age of duplicates": true, "Ages": true,
	}
	for _, q := range p.answer(d, began, demoAnswersEnv) {
		if want[q.title] {
			assert.NotZero(t, q.numbers, "%q has no data: %s", q.title, q.expr)
		}
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

func scrapeConfig(targets []string) string {
	return fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs: [{job_name: shop, static_configs: [{targets: [%s]}]}]\n",
		`"`+strings.Join(targets, `", "`)+`"`)
}

// question is an expression of a panel, and how many numbers its answer has.
type question struct {
	title, expr string
	numbers     int
}

// answer evaluates all expressions of d for the time since began, and writes the answers to the
// file that env names.
func (p prometheus) answer(d dashboard, began time.Time, env string) (asked []question) {
	p.t.Helper()
	end := time.Now().Truncate(step)
	a := answers{Start: began.Unix(), End: end.Unix(), Steps: map[int]int64{},
		Matrices: map[string]json.RawMessage{}}
	a.Names = p.names()
	for _, panel := range d.Panels {
		every := panel.interval(a.End - a.Start)
		a.Steps[panel.ID] = every
		// The values that Grafana uses for a scrape interval of a second, and for the names
		// "All".
		filled := strings.NewReplacer("$__rate_interval", fmt.Sprint(max(every+1, 4), "s"),
			"$__range", fmt.Sprint(a.End-a.Start, "s"), "$name", ".*")
		for _, target := range panel.Targets {
			matrix, numbers := p.matrix(filled.Replace(target.Expr), &a, every)
			a.Matrices[fmt.Sprintf("%d/%s", panel.ID, target.RefID)] = matrix
			asked = append(asked, question{panel.Title, target.Expr, numbers})
		}
	}
	out, err := json.Marshal(a)
	require.NoError(p.t, err)
	if file := os.Getenv(env); file != "" {
		require.NoError(p.t, os.WriteFile(file, out, 0o600))
	}
	p.t.Logf("%d answers from %d s, %d bytes", len(a.Matrices), a.End-a.Start, len(out))
	return asked
}

// prometheus is the address of a Prometheus.
type prometheus struct {
	t   *testing.T
	url string
}

func (p prometheus) get(path string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	return servertest.AskPrometheus(ctx, p.url, path, query, into)
}

// awaitUp waits until all targets of the service are scraped: an earlier event would not show as a
// rise.
func (p prometheus) awaitUp(n int) {
	p.t.Helper()
	again := time.NewTicker(step / 4)
	defer again.Stop()
	deadline := time.After(time.Minute)
	for {
		var found struct{ Data struct{ Result []any } }
		err := p.get("/api/v1/query", url.Values{"query": {"up == 1"}}, &found)
		if err == nil && len(found.Data.Result) == n {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			require.NoError(p.t, err)
			require.Len(p.t, found.Data.Result, n, "the targets that are scraped")
		}
	}
}

// matrix returns the result of query_range, and how many numbers are in it.
func (p prometheus) matrix(expr string, a *answers, every int64) (matrix json.RawMessage,
	numbers int) {
	p.t.Helper()
	var found struct {
		Data struct{ Result json.RawMessage }
	}
	query := url.Values{"query": {expr}, "start": {fmt.Sprint(a.Start)}, "end": {fmt.Sprint(a.End)},
		"step": {fmt.Sprint(every)}}
	require.NoError(p.t, p.get("/api/v1/query_range", query, &found), expr)
	var all []struct{ Values [][2]any }
	require.NoError(p.t, json.Unmarshal(found.Data.Result, &all))
	for _, series := range all {
		for _, v := range series.Values {
			if v[1] != "NaN" {
				numbers++
			}
		}
	}
	return found.Data.Result, numbers
}

// names returns the values of the dashboard's variable.
func (p prometheus) names() []string {
	p.t.Helper()
	var found struct{ Data []string }
	require.NoError(p.t, p.get("/api/v1/label/onceward_name/values",
		url.Values{"match[]": {"onceward_dedup_claims_total"}}, &found))
	return found.Data
}
