//go:build long

package guarantees_test

import "github.com/onceward/onceward/redisadapter"

// kinds of Deduper that are tested with every fault.
var kinds = []kind{full, {"full without results", redisadapter.Full, true},
	{"compact", redisadapter.Compact, true}}
