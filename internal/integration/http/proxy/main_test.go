// Package proxy_test runs the command onceward proxy in front of services in other languages, with
// a real Redis and clients of several languages.
package proxy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const root = "../../../.."

// command is the file of the command, which TestMain builds.
var command string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "onceward-proxy")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	command = filepath.Join(dir, "onceward")
	build := exec.Command("go", "build", "-ldflags=-s", "-o", command, "./cmd/onceward")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}
