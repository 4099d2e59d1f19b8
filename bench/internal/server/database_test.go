package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/onceward/onceward/sqladapter"
)

// writeFiles makes a proc to read.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// stat is a line of /proc/PID/stat: of a program with an odd name, whose ended children have used
// 70 ms.
func stat(pid, parent int) string {
	return fmt.Sprintf("%d (post gres) ) S %d 0 0 0 0 0 0 0 0 0 100 200 3 4", pid, parent) +
		strings.Repeat(" 0", 35)
}

// A family is a process, its children, and what ended children of it have used; not the rest.
func TestFamilyTime(t *testing.T) {
	proc, err := procfs.NewFS(writeFiles(t, map[string]string{
		"10/stat": stat(10, 1), "10/task/10/schedstat": "1000000 5 6",
		"11/stat": stat(11, 10), "11/task/11/schedstat": "2000000 0 0",
		"11/task/12/schedstat": "3000000 0 0",
		"99/stat":              stat(99, 1), "99/task/99/schedstat": "77000000 0 0",
		"100/stat":              "", // it has ended meanwhile
		"self-is-no-number/foo": "",
	}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := familyTime(proc, 10)
	if want := 6*time.Millisecond + 70*time.Millisecond; err != nil || got != want {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if _, err := familyTime(proc, 12); err == nil {
		t.Error("a process that is not there has no time")
	}
}

func TestSQLite(t *testing.T) {
	s, err := OpenDatabase(t.Context(), sqladapter.SQLite, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if s.CPU() != nil || !s.Own {
		t.Error("it has no process of its own, and nobody else uses it")
	}
	version, err := s.Version(t.Context())
	if err != nil || !strings.HasPrefix(version, "3.") {
		t.Errorf("version %q, %v", version, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.dir); err == nil {
		t.Error("its folder is still there")
	}
}

func TestMySQLParameters(t *testing.T) {
	s, err := OpenDatabase(t.Context(), sqladapter.MySQL, "u:p@tcp(127.0.0.1:1)/d", 0)
	if err != nil || !strings.Contains(s.URL, "interpolateParams=true") {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := OpenDatabase(t.Context(), sqladapter.MySQL, "not a name", 0); err == nil {
		t.Error("no error")
	}
	if err := s.Close(); err != nil { // it is not ours to stop
		t.Error(err)
	}
}
