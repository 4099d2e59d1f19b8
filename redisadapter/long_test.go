//go:build long

package redisadapter_test

import (
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/redisadapter"
)

// Everything: the whole walks, and every layout over every topology.
const (
	walkSteps   = deduptest.DefaultWalkSteps
	byHandSteps = walkSteps
)

var topologyLayouts = layouts

var movingLayouts = [][2]redisadapter.Layout{
	{redisadapter.Full, redisadapter.Compact}, {redisadapter.Compact, redisadapter.Full},
	{redisadapter.Full, redisadapter.Full},
}

const raceKeys = 4000

const evictionKeys, evictionMemory = 120_000, "16mb"

const edgeKeys, edgeWorkers = 1024, 32
