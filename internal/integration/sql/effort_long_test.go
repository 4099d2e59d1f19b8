//go:build long

package sql_test

import "time"

// A day would find more; this is minutes.
const (
	fireCrashes      = 20
	fireKills        = 100
	fireEvery        = 30 * time.Millisecond
	cutRounds        = 1200
	stormRotations   = 600
	mariadbRotations = 300
	killedBeforeEach = true
	stormControls    = true
)

var (
	someModes  = pgxModes
	killedWhen = []string{"before", "during", "after"}
)
