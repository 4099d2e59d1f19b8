package demo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/racebuild"
)

// plain and raced build the program once for all tests. raced has the race detector if the tests
// have it. Only one demo runs so, because its many processes show a race, and the detector makes
// each several times slower.
var (
	plain = sync.OnceValues(func() (string, error) { return build("plain") })
	raced = sync.OnceValues(func() (string, error) { return build("raced", racebuild.Flags()...) })

	programs string // their directory
)

func build(name string, flags ...string) (string, error) {
	exe := filepath.Join(programs, name)
	args := append(append([]string{"build"}, flags...), "-o",
		exe, "github.com/onceward/onceward/cmd/onceward")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return exe, nil
}

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "onceward-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// command is the program, in an environment whose temporary directory is dir.
func command(t *testing.T, built func() (string, error), dir string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := built()
	require.NoError(t, err)
	cmd := exec.Command(exe, append([]string{"demo"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GORACE=halt_on_error=1 exitcode=66")
	return cmd
}

// demo runs the program until it ends, and checks that it leaves no file behind.
func demo(t *testing.T, wantCode int, args ...string) string {
	t.Helper()
	return run(t, plain, wantCode, args...)
}

func run(t *testing.T, built func() (string, error), wantCode int, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := command(t, built, dir, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	require.False(t, err != nil && !errors.As(err, &exit))
	require.Equal(t, wantCode, cmd.ProcessState.ExitCode(), out.String())
	leftBehind(t, dir)
	return out.String()
}

func leftBehind(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err, "left behind: %v, %v", left, err)
	assert.Empty(t, left, "left behind: %v, %v", left, err)
}

// row returns the numbers of a row of the table.
func row(t *testing.T, out, label string) []int {
	t.Helper()
	match := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(label) +
		`((?: +\d+)+)$`).FindStringSubmatch(out)
	require.NotNil(t, match, "no row %q in\n%s", label, out)
	var numbers []int
	for _, f := range strings.Fields(match[1]) {
		n, err := strconv.Atoi(f)
		require.NoError(t, err)
		numbers = append(numbers, n)
	}
	return numbers
}

// expect checks the columns of a row: at least min in each, and at most max.
func expect(t *testing.T, out, label string, bounds ...[2]int) {
	t.Helper()
	got := row(t, out, label)
	require.Len(t, got, len(bounds), "%s: %v, want %d columns", label, got, len(bounds))
	for i, b := range bounds {
		assert.GreaterOrEqual(t, got[i], b[0], "%s, column %d: %d, want %d to %d\n%s", label, i, got[i],
			b[0], b[1], out)
		assert.LessOrEqual(t, got[i], b[1], "%s, column %d: %d, want %d to %d\n%s", label, i, got[i],
			b[0], b[1], out)
	}
}

func is(n int) [2]int      { return [2]int{n, n} }
func atLeast(n int) [2]int { return [2]int{n, 1 << 30} }

// TestDemo shows what a person sees: two crashes at each point, a rebalance, and every promise
// kept. The usual pattern loses messages that it has marked and not done. It may also double: when
// a rebalance cuts off a call whose effect has landed, its DEL makes the key new.
func TestDemo(t *testing.T) {
	t.Parallel()
	out := run(t, raced, 0, "--messages", "150")
	expect(t, out, "unique ids", is(150), is(150), is(150))
	expect(t, out, "effects in the ledger", is(150),
		[2]int{150, 150 + row(t, out, "  after it, before record or offset")[1]}, [2]int{1, 160})
	expect(t, out, "workers killed (SIGKILL)", atLeast(4), atLeast(4), atLeast(4))
	expect(t, out, "  before the effect", atLeast(2), atLeast(2), atLeast(2))
	expect(t, out, "  after it, before record or offset", atLeast(2), atLeast(2), atLeast(2))
	expect(t, out, "rebalances", atLeast(3), atLeast(3), atLeast(3))
	expect(t, out, "  producer retry", atLeast(20), atLeast(20), atLeast(1))
	expect(t, out, "  replay after crash or rebalance", atLeast(1), atLeast(1), atLeast(0))
	expect(t, out, "lost", is(0), is(0), atLeast(2))
	expect(t, out, "doubled", is(0),
		[2]int{1, row(t, out, "  after it, before record or offset")[1]}, atLeast(0))
	expect(t, out, "  unexplained", is(0), is(0), atLeast(0))
	explained := regexp.MustCompile(
		`(?m)^Claimed: pay-\d+ had its effect \d times: w[12]'* was killed at .* between effect and record$`)
	n := len(explained.FindAllString(out, -1))
	assert.Equal(t, row(t, out, "doubled")[1], n,
		"%d doubled ids are printed with their crash:\n%s", n, out)
	for _, want := range []string{"Atomic kept its promise", "Claimed kept its promise",
		"SET NX promises nothing", "w3 joins", "SIGTERM w3"} {
		assert.Contains(t, out, want, "output lacks %q:\n%s", want, out)
	}
}

// TestDemoCanFail: workers that break the rules are found.
func TestDemoCanFail(t *testing.T) {
	t.Run("record", func(t *testing.T) {
		t.Parallel()
		out := demo(t, 1, "--messages", "100", "--naive=false", "--break", "record")
		expect(t, out, "doubled", atLeast(5), atLeast(5))
		expect(t, out, "  unexplained", atLeast(5), atLeast(5))
		assert.Contains(t, out, "Claimed BROKE its promise")
		assert.Contains(t, out, "UNEXPLAINED")
	})
	t.Run("effect", func(t *testing.T) {
		t.Parallel()
		out := demo(t, 1, "--messages", "100", "--naive=false", "--break", "effect")
		expect(t, out, "lost", atLeast(1), atLeast(1))
		assert.Contains(t, out, "Atomic BROKE its promise")
		assert.Contains(t, out, "is lost: UNEXPLAINED")
	})
}

// TestDemoTimeout: a run that does not end reports its progress, and fails.
func TestDemoTimeout(t *testing.T) {
	t.Parallel()
	out := demo(t, 1, "--messages", "5000", "--timeout", "1s")
	assert.Contains(t, out, "onceward demo: Atomic: not finished: atomic")
}

// waitFor reads the output until a line contains text.
func waitFor(ctx context.Context, t *testing.T, lines <-chan string, text string) {
	t.Helper()
	for {
		select {
		case line, ok := <-lines:
			require.True(t, ok, "the program ended before it wrote %q", text)
			if strings.Contains(line, text) {
				return
			}
		case <-ctx.Done():
			t.Fatalf("the program did not write %q", text)
		}
	}
}
