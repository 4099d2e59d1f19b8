//go:build !long

package redisadapter_test

import "github.com/onceward/onceward/redisadapter"

// walkSteps keeps the suite's walks short, because it runs over many stores. With the build tag
// long the walks are complete.
const (
	walkSteps   = 24
	byHandSteps = 12
)

// topologyLayouts are the layouts that run over every way to reach a server: one with records and
// one with members. All layouts run on one server and on a Cluster.
var topologyLayouts = []redisadapter.Layout{redisadapter.Full, redisadapter.Compact}

// movingLayouts is the move that is run through the whole suite: from records to members.
var movingLayouts = [][2]redisadapter.Layout{{redisadapter.Full, redisadapter.Compact}}

// raceKeys is how many keys 64 workers race for.
const raceKeys = 200

// evictionKeys are more than a server of evictionMemory can keep.
const evictionKeys, evictionMemory = 40_000, "5mb"

// edgeKeys are the keys, 128 at each of the edges of generations, that edgeWorkers race for.
const edgeKeys, edgeWorkers = 512, 16
