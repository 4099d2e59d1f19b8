package harness

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// fake is a server that knows whether it was closed.
type fake struct{ closed bool }

func (*fake) Name() string                            { return "fake" }
func (*fake) Kind() string                            { return "a fake on loopback" }
func (*fake) Version(context.Context) (string, error) { return "7", nil }
func (f *fake) Close() error                          { f.closed = true; return nil }

// Results say what took part, what was left out and why, and the servers end with the run.
func TestMeasure(t *testing.T) {
	server := &fake{}
	figure := func(title string, change func(*Group)) Group {
		g := Group{Workload: title, Title: title, Open: func(_ context.Context, s *Setup) error {
			s.Rows = []Row{Figure(title, "s", 1, "B", Goal{})}
			return nil
		}}
		change(&g)
		return g
	}
	suite := Suite{Area: "area", Open: func(context.Context, Options) (*Bench, error) {
		return &Bench{Servers: []Server{server}, Machine: "a test", Groups: []Group{
			figure("one", func(*Group) {}), figure("detail", func(g *Group) {
				g.Detail = true
			}), figure("other", func(g *Group) { g.Unable = "needs more" }),
		}}, nil
	}}
	r, err := suite.Measure(t.Context(), Options{Quick: true, Rounds: 1}, Progress{})
	if err != nil || len(r.Rows) != 1 || r.Rows[0].Workload != "one" || r.Versions["fake"] != "7" ||
		r.Versions["go"] == "" || !server.closed {
		t.Errorf("%+v, %v, closed %v", r, err, server.closed)
	}
	if !strings.HasSuffix(r.Machine, ", a fake on loopback, a test") || r.Area != "area" ||
		r.Date == "" {
		t.Errorf("%+v", r)
	}
	if len(r.LeftOut) != 2 || r.LeftOut[0] != "other: needs more" ||
		!strings.Contains(r.LeftOut[1], "quick run") {
		t.Errorf("left out %q", r.LeftOut)
	}
	if r, err = suite.Measure(t.Context(), Options{Rounds: 1}, Progress{}); err != nil ||
		len(r.Rows) != 2 || slices.ContainsFunc(r.LeftOut, func(what string) bool {
		return strings.Contains(what, "quick")
	}) {
		t.Errorf("a full run: %+v, %v", r, err)
	}
	for _, o := range []Options{{Run: "nothing"}, {Run: "("}, {CPUProfile: t.TempDir()}} {
		if _, err := suite.Measure(t.Context(), o, Progress{}); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// A suite that could not start all of its servers ends those that it has started.
func TestServersEndAfterAnError(t *testing.T) {
	server, broken := &fake{}, errors.New("broken")
	suite := Suite{Open: func(context.Context, Options) (*Bench, error) {
		return &Bench{Servers: []Server{server}}, broken
	}}
	if _, err := suite.Measure(t.Context(), Options{}, Progress{}); !errors.Is(err, broken) ||
		!server.closed {
		t.Errorf("%v, closed %v", err, server.closed)
	}
}
