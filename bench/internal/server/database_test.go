package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/sqladapter"
)

// writeFiles makes a directory like /proc.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return dir
}

// stat returns a line of /proc/PID/stat. The program has an odd name, and its ended children have
// used 70 ms.
func stat(pid, parent int) string {
	return fmt.Sprintf("%d (post gres) ) S %d 0 0 0 0 0 0 0 0 0 100 200 3 4", pid, parent) +
		strings.Repeat(" 0", 35)
}

// A family is a process, its children, and the time of their ended children. It is nothing else.
func TestFamilyTime(t *testing.T) {
	proc, err := procfs.NewFS(writeFiles(t, map[string]string{
		"10/stat": stat(10, 1), "10/task/10/schedstat": "1000000 5 6",
		"11/stat": stat(11, 10), "11/task/11/schedstat": "2000000 0 0",
		"11/task/12/schedstat": "3000000 0 0",
		"99/stat":              stat(99, 1), "99/task/99/schedstat": "77000000 0 0",
		"100/stat":              "", // this process has just ended
		"self-is-no-number/foo": "",
	}))
	require.NoError(t, err)
	got, err := familyTime(proc, 10)
	require.NoError(t, err)
	assert.Equal(t, 6*time.Millisecond+70*time.Millisecond, got)
	_, err = familyTime(proc, 12)
	require.Error(t, err, "a process that is not there has no time")
}

func TestSQLite(t *testing.T) {
	s := OpenDatabase(t.Context(), &harness.Bench{}, sqladapter.SQLite, "")
	assert.Nil(t, s.CPU(), "it has no process of its own")
	assert.Regexp(t, `^3\.`, s.Version(t.Context()))
	require.NoError(t, s.Close())
	assert.NoDirExists(t, s.dir)
}

func TestMySQLParameters(t *testing.T) {
	s := OpenDatabase(t.Context(), &harness.Bench{}, sqladapter.MySQL, "u:p@tcp(127.0.0.1:1)/d")
	assert.Contains(t, s.URL, "interpolateParams=true")
	require.Error(t, must.Try(func() {
		OpenDatabase(t.Context(), &harness.Bench{}, sqladapter.MySQL, "not a name")
	}))
	require.NoError(t, s.Close(), "it is not ours to stop")
}

func TestDatabaseThatIsLeftOut(t *testing.T) {
	b := &harness.Bench{}
	assert.Nil(t, OpenDatabase(t.Context(), b, sqladapter.MySQL, None))
	assert.Equal(t, []string{"MariaDB: there is none"}, b.LeftOut)
	assert.Empty(t, b.Servers)
}
