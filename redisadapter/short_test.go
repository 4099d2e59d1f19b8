//go:build !long

package redisadapter_test

import "github.com/onceward/onceward/redisadapter"

// walkSteps keeps the suite's walks short: it runs over many stores. The build tag long
// has the whole of them.
const walkSteps = 60

// topologyLayouts are those that are run over every way to reach a server, one for records
// and one for members; one server and a Cluster have all of them.
var topologyLayouts = []redisadapter.Layout{redisadapter.Rich, redisadapter.Compact}
