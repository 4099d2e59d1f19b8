package harness

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/must"
)

// Results name what was measured, and what was left out and why. The servers end with the run.
func TestMeasure(t *testing.T) {
	closed, once := false, Scale{Rounds: 1}
	server := &Server{Name: "fake", Kind: "a fake on loopback",
		Version: func(context.Context) string { return "7" }}
	open := func(_ context.Context, s *Setup) { s.Figure("n", "s", 1, "B") }
	suite := Suite{Area: "area", Open: func(_ context.Context, _ Options, b *Bench) {
		b.Defer(func() error { closed = true; return nil })
		b.Servers = []*Server{server, {Kind: "a test"}}
		b.Groups = []Group{
			{Workload: "one", Title: "one", Open: open},
			{Workload: "detail", Title: "detail", Open: open, Detail: true},
			{Workload: "other", Title: "other", Open: open, Unable: "needs more"},
		}
	}}
	r, err := suite.Measure(t.Context(), Options{Quick: true, Scale: once}, nil)
	require.NoError(t, err)
	require.Len(t, r.Rows, 1)
	assert.Equal(t, []string{"one", "7", "area"},
		[]string{r.Rows[0].Workload, r.Versions["fake"], r.Area})
	assert.NotEmpty(t, r.Versions["go"])
	assert.NotEmpty(t, r.Date)
	assert.True(t, closed)
	assert.Regexp(t, ", a fake on loopback, a test$", r.Machine)
	require.Len(t, r.LeftOut, 2)
	assert.Equal(t, "other: needs more", r.LeftOut[0])
	assert.Contains(t, r.LeftOut[1], "quick run")

	r, err = suite.Measure(t.Context(), Options{Scale: once}, nil)
	require.NoError(t, err)
	assert.Len(t, r.Rows, 2)
	assert.Equal(t, []string{"other: needs more"}, r.LeftOut, "of a full run")
	for _, o := range []Options{{Run: "nothing"}, {Run: "("}, {CPUProfile: t.TempDir()}} {
		_, err := suite.Measure(t.Context(), o, nil)
		assert.Error(t, err, "%+v", o)
	}
}

// If a suite cannot start all of its servers, those that it has started are ended.
func TestServersEndAfterAnError(t *testing.T) {
	closed, broken := false, errors.New("broken")
	suite := Suite{Open: func(_ context.Context, _ Options, b *Bench) {
		b.Defer(func() error { closed = true; return nil })
		must.Do(broken)
	}}
	_, err := suite.Measure(t.Context(), Options{}, nil)
	require.ErrorIs(t, err, broken)
	assert.True(t, closed)
}
