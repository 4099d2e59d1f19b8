package demo_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNobodyOutlivesTheDemo: when the demo is interrupted or killed, its workers end. When it is
// interrupted, it also cleans up.
func TestNobodyOutlivesTheDemo(t *testing.T) {
	for _, test := range []struct {
		name   string
		signal syscall.Signal
		code   int
		clean  bool
	}{
		{"interrupted", syscall.SIGINT, 130, true},
		{"terminated", syscall.SIGTERM, 130, true},
		{"killed", syscall.SIGKILL, -1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := command(t, plain, dir)
			var errOut bytes.Buffer
			cmd.Stderr = &errOut
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			lines := make(chan string)
			go func() {
				defer close(lines)
				for scan := bufio.NewScanner(stdout); scan.Scan(); {
					select {
					case lines <- scan.Text():
					case <-ctx.Done():
					}
				}
			}()
			waitFor(ctx, t, lines, "w3 joins") // after that at most one of three is dead
			children := childrenOf(t, cmd.Process.Pid)
			require.GreaterOrEqual(t, len(children), 2, "%d workers are running", len(children))
			require.NoError(t, cmd.Process.Signal(test.signal))
			for range lines { // to the end: Wait closes the pipe
			}
			_ = cmd.Wait() // the exit code below says more
			code := cmd.ProcessState.ExitCode()
			assert.Equal(t, test.code, code, errOut.String())
			for _, pid := range children {
				gone(ctx, t, pid)
			}
			if test.clean {
				leftBehind(t, dir)
			}
		})
	}
}

// childrenOf lists the worker processes of a process.
func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	var children []int
	for _, file := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && parentOf(pid) == parent {
			children = append(children, pid)
		}
	}
	return children
}

// parentOf returns 0 if the process is gone, or dead and not yet waited for.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // after the name
	fields := strings.Fields(rest)
	if len(fields) < 2 || fields[0] == "Z" {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

func gone(ctx context.Context, t *testing.T, pid int) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for parentOf(pid) != 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("worker %d outlives the demo", pid)
		}
	}
}
