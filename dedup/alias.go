package dedup

import "github.com/onceward/onceward/dedup/driver"

// Short names for what package driver defines and callers of this package meet. Package driver
// has what only stores need.
type (
	// Store keeps claims and records. [Memory] and package redisadapter make one.
	Store = driver.Store
	// Record is what a store knows of one key.
	Record = driver.Record
	// Cause is why a duplicate arrived.
	Cause = driver.Cause
	// Origin says where a message came from, so that a later duplicate can be explained.
	Origin = driver.Origin
	// InputError says what is wrong with a configuration or a call, before any side effect.
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
