//go:build long

package redisadapter_test

import "github.com/onceward/onceward/dedup/deduptest"

// Everything: the whole walks, and every layout over every topology.
const walkSteps = deduptest.DefaultWalkSteps

var topologyLayouts = layouts
