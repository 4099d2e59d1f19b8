package sqlstore

import (
	"database/sql"
	"flag"
	"testing"

	"github.com/onceward/onceward/sqladapter/internal/sqlscript"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Step and Script are those of package sqlscript.
type (
	Step   = sqlscript.Step
	Script = sqlscript.Script
)

func openScript(t *testing.T, steps ...Step) (*sql.DB, *Script) {
	t.Helper()
	return sqlscript.Open(t, steps...)
}
