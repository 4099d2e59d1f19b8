//go:build !long

package sql_test

import "time"

// How much is done to the databases; under the tag long it is more.
const (
	fireCrashes      = 2
	fireKills        = 12 // before, between and after the crashes
	fireEvery        = 20 * time.Millisecond
	cutRounds        = 36 // of each way to mark, on each engine and in each mode
	stormRotations   = 20
	mariadbRotations = 6
	killedBeforeEach = false // statement: the same as after the one before
	stormControls    = false // rows that show what the storm does to marks that lack a guard
)

var (
	someModes  = []string{"cache_statement", "simple_protocol"}
	killedWhen = []string{"before", "after"}
)
