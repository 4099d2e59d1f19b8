package prove

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/servertest"
)

// run runs the command and returns its report, if it writes one.
func run(t *testing.T, want int, args ...string) (r Report, errors string) {
	t.Helper()
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	code := cli.Run(ctx, &cli.Streams{Out: &out, Err: &errOut}, Command(), args...)
	require.Equal(t, want, code, "%s%s", &out, &errOut)
	if out.Len() > 0 {
		require.NoError(t, json.Unmarshal(out.Bytes(), &r))
		t.Logf("%d kills, once %d, lost %d, doubled %d", r.Kills, r.Once, len(r.Lost),
			len(r.Doubled))
	}
	return r, errOut.String()
}

// built compiles a program of testdata.
func built(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file,
		"./testdata/"+name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return file
}

// with adds the environment in which the program finds its servers.
func with(args []string, env ...string) []string {
	return append(append([]string{"env"}, env...), args...)
}

const selectIDs = `python3 -c "import sqlite3,sys;` +
	`[print(r[0]) for r in sqlite3.connect(sys.argv[1]).execute('SELECT id FROM payments')]" `

// Five programs, right or wrong in different ways, each get the right report. Three are in Python.
func TestPrograms(t *testing.T) {
	redis := servertest.Redis(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	for name, test := range map[string]struct {
		program        []string
		rows           bool // effects are rows of a database
		loses, doubles bool // always
		explained      bool // it may double, but only by kills
	}{
		"SET NX by hand":    {program: []string{"python3", "testdata/setnx.py"}, loses: true},
		"mark under a lock": {program: []string{"python3", "testdata/lock.py"}, doubles: true},
		"upsert":            {program: []string{"python3", "testdata/upsert.py"}, rows: true},
		"Claimed":           {program: []string{built(t, "claimed")}, explained: true},
		"Atomic":            {program: []string{built(t, "atomic")}, rows: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := filepath.Join(t.TempDir(), "payments.db")
			args := []string{"--json", "--kills", "10", "--messages", "200"}
			if test.rows {
				args = append(args, "--count", selectIDs+db)
			}
			args = append(append(args, "--"), with(test.program, "TEST_REDIS="+redis,
				"TEST_PREFIX="+servertest.Prefix(t), "TEST_DB="+db)...)
			want := cli.Done
			if test.loses || test.doubles {
				want = cli.No
			}
			if test.explained {
				r := either(t, args...)
				assert.Empty(t, r.Lost)
				assert.Empty(t, r.Unsent)
				for _, w := range r.Doubled {
					assert.NotEmpty(t, w.Kills, w.ID)
				}
				return
			}
			r, _ := run(t, want, args...)
			assert.Equal(t, test.loses, len(r.Lost) > 0, "lost")
			assert.Equal(t, test.doubles, len(r.Doubled) > 0, "doubled")
			assert.Equal(t, 10, r.Kills)
			assert.Empty(t, r.Unsent)
			for _, w := range append(r.Lost, r.Doubled...) {
				assert.NotEmpty(t, w.Kills, w.ID)
			}
		})
	}
}

// either runs the command, which may find doubles.
func either(t *testing.T, args ...string) (r Report) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := cli.Run(t.Context(), &cli.Streams{Out: &out, Err: &errOut}, Command(), args...)
	require.Contains(t, []int{cli.Done, cli.No}, code, errOut.String())
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	t.Logf("%d kills, once %d, doubled %d", r.Kills, r.Once, len(r.Doubled))
	return r
}

func TestProgramThatDoesNotRun(t *testing.T) {
	_, said := run(t, cli.Usage, "--", filepath.Join(t.TempDir(), "nothing"))
	assert.Contains(t, said, "the program does not start")
	_, said = run(t, cli.Usage, "--", "sh", "-c", "echo no database; exit 3")
	assert.Contains(t, said, "the program has ended by itself: exit status 3")
	assert.Contains(t, said, "no database")
	_, said = run(t, cli.Usage, "--brokers", "127.0.0.1:1", "--topic", "t", "--", "true")
	assert.Equal(t, 1, strings.Count(said, "itself: exit status 0; it has printed nothing"), said)
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		code <- cli.Run(ctx, &cli.Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}, Command(),
			"--", "sh", "-c", "echo $$ > "+file+"; sleep 1000")
	}()
	require.Eventually(t, func() bool { text, _ := os.ReadFile(file); return len(text) > 1 },
		time.Minute, 10*time.Millisecond)
	cancel()
	assert.Equal(t, cli.Interrupted, <-code)
	pid, err := os.ReadFile(file)
	require.NoError(t, err)
	alive := exec.CommandContext(t.Context(), "kill", "-0", strings.TrimSpace(string(pid)))
	assert.Error(t, alive.Run(), "the program runs on")
}

// A command that the shell cannot run ends the test before the program starts. A command that only
// fails without an effect does not.
func TestCountCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	for command, want := range map[string]string{
		"count-of-nobody": "--count: exit status 127: ",
		file + "/":        "--count: exit status 12", // 126 or 127, by the shell
		"echo (":          "--count: exit status 2: ",
	} {
		_, said := run(t, cli.Usage, "--count", command, "--", "touch", file)
		assert.Contains(t, said, want)
		assert.NoFileExists(t, file)
	}
	done := newEffects([]string{"a"})
	require.NoError(t, done.countable(t.Context(), "cat "+file))
	assert.ErrorContains(t, done.counted(t.Context(), "cat "+file), "--count: exit status 1: cat: ")
	require.NoError(t, done.countable(t.Context(), "echo a"))
}

func TestUsage(t *testing.T) {
	for says, args := range map[string]string{
		"there is no program":        "",
		"--messages is 0":            "--messages 0 -- x",
		"--duplicates is 2":          "--duplicates 2 -- x",
		"--kills is -1":              "--kills -1 -- x",
		"--every is 0s":              "--every 0s -- x",
		"--workers is 0":             "--workers 0 -- x",
		"--settle is 0s":             "--settle 0s -- x",
		"exclude each other":         "--url http://h/ --topic t -- x",
		"--brokers":                  "--topic t -- x",
		"which is not http://host:p": "--url h:1 -- x",
	} {
		_, said := run(t, cli.Usage, strings.Fields(args)...)
		assert.Contains(t, said, says, args)
	}
}
