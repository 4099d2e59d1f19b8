// Package sqlname checks and quotes the names that are put into statements. No other text is put
// into statements; everything else is a parameter.
package sqlname

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

// Form is what a name has to look like, for error messages.
const Form = "must match [A-Za-z_][A-Za-z0-9_]{0,62}"

// Max is the length in bytes at which PostgreSQL cuts names; MySQL allows one more, SQL Server 128.
// PostgreSQL would cut a longer name silently, and two names with the same beginning would be one
// table.
const Max = 63

var valid = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// Valid reports whether name has the Form.
func Valid(name string) bool { return valid.MatchString(name) }

// Quote puts a valid name between marks: '"', or '`' for MySQL, or '[' for SQL Server, where '"'
// depends on a setting of the session.
func Quote(name string, mark byte) string {
	if mark == '[' {
		return "[" + name + "]"
	}
	return string(mark) + name + string(mark)
}

// Derive appends a suffix that survives the cut at Max. If an index's name were cut to the name of
// its table, CREATE INDEX IF NOT EXISTS would find that name taken and create nothing. The suffix
// is at most 40 bytes.
func Derive(name, suffix string) string {
	if len(name)+len(suffix) <= Max {
		return name + suffix
	}
	sum := sha256.Sum256([]byte(name))
	tail := "_" + hex.EncodeToString(sum[:4]) + suffix
	return name[:Max-len(tail)] + tail
}
