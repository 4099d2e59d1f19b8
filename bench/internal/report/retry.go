package report

import (
	"github.com/onceward/onceward/bench/internal/chart"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/web"
)

// areaRetry is the area of simulations.
const areaRetry = "retry"

// retryStyle is the look of the lines, kept apart from that of measured sides.
var retryStyle = map[string]chart.Series{
	web.NoJitter:     {Color: 3},
	web.FullJitter:   {Color: 0, Bold: true},
	web.EqualJitter:  {Color: 2},
	web.Decorrelated: {Color: 4},
	web.Capacity:     {Color: 7, Dashed: true},
	web.OnlyAttempts: {Color: 3},
	web.WithBudget:   {Color: 0, Bold: true},
	web.WithBreaker:  {Color: 2, Bold: true},
	web.Wanted:       {Color: 7, Dashed: true},
}

func ofRetry(r harness.Results) []figure {
	return []figure{
		{"comeback", "1,000 clients whose requests were cut off at 0 s try until they are served. The server is down for 20 s; then it can do 100 requests/s. The first ten seconds, which are much alike, are left out.", chart.Lines{
			Title: "A server that comes back after 20 s", XLabel: "seconds", YLabel: "requests/s", Plain: true,
			Series: styled(sides(r, web.FamilyComeback, "requests/s")),
		}},
		{"outage", "1,000 requests/s, and what a total outage from 20 s to 50 s makes of them.", chart.Lines{
			Title: "An outage from 20 s to 50 s", XLabel: "seconds", YLabel: "requests/s", Plain: true,
			Series: styled(sides(r, web.FamilyOutage, "requests/s")),
		}},
	}
}

func styled(series []chart.Series) []chart.Series {
	for i, s := range series {
		style := retryStyle[s.Name]
		style.Name, style.Points = s.Name, s.Points
		series[i] = style
	}
	return series
}
