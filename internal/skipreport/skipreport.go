// Package skipreport makes a plain `go test ./...` say what it did not test.
//
// Without servers many tests skip, and `go test ./...` does not enter nested modules even under
// go.work; yet with a list of packages the go command shows no output of a package that passes. So
// the one test of this package writes its notice where the go command itself writes: to the
// standard error of its parent process. `make test` leaves nothing out, and then nothing is
// written.
package skipreport

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// servers says which server each variable of internal/servertest stands for.
var servers = []struct{ variable, what string }{
	{"ONCEWARD_REDIS", "real Redis"},
	{"ONCEWARD_REDIS_PRIMARY", "Redis primary and replica"},
	{"ONCEWARD_REDIS_CLUSTER", "Redis Cluster"},
	{"ONCEWARD_VALKEY", "Valkey"},
	{"ONCEWARD_POSTGRES", "PostgreSQL"},
	{"ONCEWARD_MARIADB", "MariaDB"},
	{"ONCEWARD_KAFKA", "Apache Kafka (one node)"},
	{"ONCEWARD_KAFKA3", "Apache Kafka (three nodes)"},
}

// wantServers is set by `make test`, which enters the nested modules as well.
const wantServers = "ONCEWARD_SERVERS"

// notice returns what the run leaves out, or "" when that is nothing. getenv is os.Getenv; modules
// are the nested modules of the workspace.
func notice(getenv func(string) string, modules []string) string {
	var missing []string
	for _, s := range servers {
		if getenv(s.variable) == "" {
			missing = append(missing, s.what)
		}
	}
	var lines []string
	if len(missing) > 0 {
		lines = append(lines, "NOT RUN: tests against "+strings.Join(missing, ", "))
	}
	if getenv(wantServers) == "" {
		lines = append(lines, "NOT RUN: tests that kill or freeze a server of their own")
		if len(modules) > 0 {
			lines = append(lines, "NOT RUN: the nested modules "+strings.Join(modules, ", "))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	lines = append(lines, "NOT RUN: to run them all: make test")
	return strings.Join(lines, "\n") + "\n"
}

// nestedModules reads from the workspace's file the modules that `go test ./...` does not enter.
func nestedModules(gowork string) ([]string, error) {
	text, err := os.ReadFile(gowork)
	if err != nil {
		return nil, err
	}
	var modules []string
	for line := range strings.Lines(string(text)) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "./"); ok {
			modules = append(modules, filepath.Clean(dir))
		}
	}
	return modules, nil
}

// write writes text to the first place where a person will see it.
func write(text string) error {
	var errs []string
	for _, place := range []func() (*os.File, error){parentStderr, terminal} {
		f, err := place()
		if err == nil {
			_, err = f.WriteString(text)
			_ = f.Close()
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err.Error())
	}
	return fmt.Errorf("no place for the notice: %s", strings.Join(errs, "; "))
}

func terminal() (*os.File, error) { return os.OpenFile("/dev/tty", os.O_WRONLY, 0) }
