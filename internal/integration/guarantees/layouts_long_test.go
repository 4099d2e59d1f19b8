//go:build long

package guarantees_test

import "github.com/onceward/onceward/redisadapter"

// layouts whose lives are taken through every fault.
var layouts = []redisadapter.Layout{redisadapter.Rich, redisadapter.SeenOnly, redisadapter.Compact,
	redisadapter.Mixed}
