package plan

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// table is a database to fill, and the query for the size of its tables.
type table struct {
	engine  string
	dialect sqladapter.Dialect
	driver  string
	dsn     func(t *testing.T) string
	size    string
}

var (
	postgres = table{"PostgreSQL", sqladapter.Postgres, "pgx", func(t *testing.T) string {
		return servertest.Postgres(t)
	},
		`SELECT pg_total_relation_size('%[1]s'::regclass) + pg_total_relation_size('%[1]s_results'::regclass)`}
	// MariaDB is asked only for the size of the marks' file
	mariadb = table{"MariaDB", sqladapter.MySQL, "mysql", func(t *testing.T) string {
		return servertest.MariaDB(t)
	},
		`SELECT FILE_SIZE FROM information_schema.INNODB_SYS_TABLESPACES WHERE NAME LIKE '%%/%[1]s'`}
	sqlite = table{"SQLite", sqladapter.SQLite, "sqlite", func(t *testing.T) string {
		return "file:" + filepath.Join(t.TempDir(), "marks.db") +
			"?_txlock=immediate&_pragma=busy_timeout(5000)"
	}, `SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size() -- %[1]s`}
)

// TestBytesOfMarks fills one table of PostgreSQL. An index by age would add 7 bytes for each mark.
func TestBytesOfMarks(t *testing.T) {
	compareTable(t, postgres, 50_000, 0, false, 0.08)
}

// compareTable fills a table with n marks and their results, and compares its size with the
// estimate.
func compareTable(t *testing.T, e table, n, result int, fingerprint bool,
	tolerance float64) {
	t.Helper()
	db, err := sql.Open(e.driver, e.dsn(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	name := servertest.Prefix(t)
	marks, err := sqladapter.New(sqladapter.Config{Dialect: e.dialect, Namespace: "plan",
		Table: name})
	require.NoError(t, err)
	require.NoError(t, marks.Migrate(t.Context(), db))
	t.Cleanup(func() {
		for _, suffix := range []string{"", "_results", "_meta"} {
			_, _ = db.ExecContext(context.Background(), "DROP TABLE "+name+suffix)
		}
	})
	fillTable(t, db, marks, n, result, fingerprint)
	var bytes float64
	require.NoError(t, db.QueryRowContext(t.Context(), fmt.Sprintf(e.size, name)).Scan(&bytes))
	o := Options{Rate: float64(n) / 3600, Window: time.Hour, Result: result,
		Fingerprint: fingerprint}
	for _, planned := range o.sql() {
		if planned.Engine != e.engine || planned.Retention != "deletes" {
			continue
		}
		measured := bytes / float64(n)
		t.Logf("%s, %d marks, result %d, fingerprint %t: measured %.1f bytes a mark, reckoned %.1f (%+.1f %%)",
			e.engine, n, result, fingerprint, measured, planned.BytesPerKey,
			(planned.BytesPerKey/measured-1)*100)
		assert.LessOrEqual(t, math.Abs(planned.BytesPerKey/measured-1), tolerance,
			"planned %.1f bytes a mark, measured %.1f", planned.BytesPerKey, measured)
	}
}

func fillTable(t *testing.T, db *sql.DB, marks *sqladapter.Ledger,
	n, result int, fingerprint bool) {
	t.Helper()
	const batch = 250
	random := make([]byte, result)
	for first := 0; first < n; first += batch {
		reqs := make([]dedup.Request, batch)
		for i := range reqs {
			reqs[i].Key = fmt.Sprint(first + i)
			if fingerprint {
				reqs[i].Fingerprint = driver.FingerprintOf([]byte(reqs[i].Key))
			}
		}
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = marks.MarkBatchTx(t.Context(), tx, reqs)
		require.NoError(t, err)
		for _, r := range reqs {
			if result == 0 {
				break
			}
			noise(random, r.Key)
			require.NoError(t, marks.SaveResultTx(t.Context(), tx, r.Key, random))
		}
		require.NoError(t, tx.Commit())
	}
}

// noise fills b with bytes that cannot be compressed.
func noise(b []byte, key string) {
	for i := 0; i < len(b); i += 16 {
		id, _ := driver.NewID("noise", key, fmt.Sprint(i))
		copy(b[i:], id[:])
	}
}
