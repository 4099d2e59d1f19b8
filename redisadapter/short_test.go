//go:build !long

package redisadapter_test

import "github.com/onceward/onceward/redisadapter"

// walkSteps keeps the suite's walks short: it runs over many stores. The build tag long
// has the whole of them.
const walkSteps = 60

// topologyLayouts are those that are run over every way to reach a server, one for records
// and one for members; one server and a Cluster have all of them.
var topologyLayouts = []redisadapter.Layout{redisadapter.Rich, redisadapter.Compact}

// movingLayouts are the moves that are run through the whole suite: with members on one side
// and records on the other.
var movingLayouts = [][2]redisadapter.Layout{{redisadapter.Rich, redisadapter.Compact}, {redisadapter.Compact, redisadapter.Rich}}

// raceKeys is how many keys 64 workers race for.
const raceKeys = 2000
