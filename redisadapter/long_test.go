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
	{redisadapter.Rich, redisadapter.Compact}, {redisadapter.Compact, redisadapter.Rich},
	{redisadapter.Rich, redisadapter.Rich}, {redisadapter.Rich, redisadapter.SeenOnly},
}

const raceKeys = 4000
