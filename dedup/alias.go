package dedup

import "github.com/onceward/onceward/dedup/driver"

// Short names for what package driver defines and most programs write. The rest is reached through
// package driver.
type (
	// Store keeps claims and records. [Memory] returns one; other packages, such as redisadapter,
	// have more.
	Store = driver.Store
	// Record is what a store knows of one key.
	Record = driver.Record
	// InputError says what is wrong in a configuration or call; nothing was done.
	InputError = driver.InputError
)

// Outcomes of a claim; see [driver.Outcome].
const (
	Unknown   = driver.Unknown
	Acquired  = driver.Acquired
	Duplicate = driver.Duplicate
	InFlight  = driver.InFlight
	Mismatch  = driver.Mismatch
	Uncertain = driver.Uncertain
)
