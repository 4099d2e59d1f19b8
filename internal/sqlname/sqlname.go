// Package sqlname checks and quotes the names that are put into statements. They are the
// only text that ever is; everything else is a parameter.
package sqlname

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

// Form is what a name has to look like, for error messages.
const Form = "must match [A-Za-z_][A-Za-z0-9_]{0,62}"

// Max is where PostgreSQL cuts names, in bytes; MySQL allows one more, SQL Server 128. A longer
// name would be cut in silence, and two names with the same beginning would be one table.
const Max = 63

var valid = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// Valid reports whether name has the Form.
func Valid(name string) bool { return valid.MatchString(name) }

// Quote puts a valid name between marks: '"', or '`' for MySQL, or '[' for SQL Server, whose
// quotes depend on a setting of the session.
func Quote(name string, mark byte) string {
	if mark == '[' {
		return "[" + name + "]"
	}
	return string(mark) + name + string(mark)
}

// Derive appends a suffix that survives the cut at Max: cut to the table's own name, CREATE
// INDEX IF NOT EXISTS would find that name taken and create nothing. The suffix is at most
// 40 bytes.
func Derive(name, suffix string) string {
	if len(name)+len(suffix) <= Max {
		return name + suffix
	}
	sum := sha256.Sum256([]byte(name))
	tail := "_" + hex.EncodeToString(sum[:4]) + suffix
	return name[:Max-len(tail)] + tail
}
