package sql_test

import (
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// TestMain silences what the driver prints of connections that tests have cut.
func TestMain(m *testing.M) {
	if err := mysql.SetLogger(new(mysql.NopLogger)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
