//go:build long

package sql_test

import "time"

// An hour would find more; this is ten minutes.
const (
	fireCrashes    = 40
	fireKills      = 200
	fireEvery      = 30 * time.Millisecond
	cutRounds      = 1200
	stormRotations = 600
)

var (
	killedModes = pgxModes
	killedWhen  = []string{"before", "during", "after"}
)
