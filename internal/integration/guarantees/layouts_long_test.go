//go:build long

package guarantees_test

import "github.com/onceward/onceward/redisadapter"

// kinds of Deduper whose lives are taken through every fault.
var kinds = []kind{full, {"full without results", redisadapter.Full, true},
	{"compact", redisadapter.Compact, true}}
