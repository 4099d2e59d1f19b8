package main

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// asked has all commands: with no arguments, with flags that make no sense, and with servers at
// ADDR. demo, plan and version use no server without flags, and prove uses a program.
var asked = map[string]struct{ nothing, bad, says, servers string }{
	"audit": {"one of --topic, --file and --table", "--file - --id x --max 0", "--max is 0",
		"--brokers ADDR --topic t"},
	"bench": {"--redis or --sql is missing", "--redis ADDR --dup 1", "--dup is 1",
		"--redis ADDR"},
	"console": {"--redis or --sql is missing", "--redis ADDR --listen x", "--listen is",
		"--redis ADDR"},
	"demo": {"", "--messages 0", "--messages is 0", ""},
	"doctor": {"--redis, --sql, --brokers or --kafka-config is missing", "--brokers a:1", "--window",
		"--redis redis://u:hunter22@ADDR"},
	"explain": {"KEY is missing", "k --brokers x --redis ADDR", "--brokers", "k --redis redis://u:hunter22@ADDR"},
	"forget": {"KEY is missing", "k --namespace a/b --redis ADDR", "--namespace has",
		"k --namespace n --yes --redis ADDR"},
	"inflight": {"--redis or --sql is missing", "--redis ADDR --limit 0", "--limit is 0",
		"--redis ADDR"},
	"inspect": {"KEY is missing", "k --namespace n --redis http://u:hunter22@ADDR", "the scheme",
		"k --namespace n --sql postgres://u:hunter22@ADDR/d"},
	"migrate": {"--kind is missing", "--kind x", "one of marks, fence", "--kind store --sql postgres://u@ADDR/d"},
	"plan":    {"--rate and --window are missing", "--rate 1 --window 1", "a duration is written", ""},
	"prove":   {"there is no program", "--kills -1 -- x", "--kills is -1", ""},
	"proxy": {"--redis is missing", "--redis ADDR --unscoped --upstream x", "--upstream is not",
		"--redis redis://u:hunter22@ADDR --unscoped --upstream http://127.0.0.1:1"},
	"replay": {"--brokers, --topic, --redis, --namespace and --window are missing", "--max x", "--max",
		"--brokers ADDR --topic t --redis ADDR --namespace n --window 7d"},
	"resolve": {"KEY is missing", "k --namespace n --redis ADDR", "--done and --released",
		"k --namespace n --released --yes --redis ADDR"},
	"uncertain": {"--redis or --sql is missing", "--older 3x", "a duration is written",
		"--redis ADDR"},
	"version": {"", "x", "unexpected argument", ""},
}

// execute runs a command line at a terminal width, and returns its output.
func execute(ctx context.Context, width int, args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	s := &cli.Streams{In: strings.NewReader(""), Out: &o, Err: &e, Width: width}
	code = cli.Execute(ctx, s, root(s), args)
	return code, o.String(), e.String()
}

func TestEveryCommand(t *testing.T) {
	var names []string
	for _, c := range root(&cli.Streams{}).Commands() {
		if made := cli.Find(c); made != nil && !made.Hidden {
			names = append(names, c.Name())
		}
	}
	require.Len(t, asked, len(names), "%v", names)
	for _, name := range names {
		test, found := asked[name]
		require.True(t, found, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.nothing != "" {
				refused(t, name, "", test.nothing)
			}
			refused(t, name, strings.ReplaceAll(test.bad, "ADDR", "127.0.0.1:1"), test.says)
			refused(t, name, "--no-such-flag", "unknown flag: --no-such-flag")
			if test.servers != "" {
				refused(t, name, strings.ReplaceAll(test.servers, "ADDR", "127.0.0.1:1"),
					"127.0.0.1:1")
				interrupted(t, name, test.servers)
			}
			for _, width := range []int{60, 80} {
				fits(t, width, name)
			}
		})
	}
}

func refused(t *testing.T, name, args, says string) {
	t.Helper()
	code, _, errOut := execute(t.Context(), 0, append([]string{name}, strings.Fields(args)...)...)
	assert.Equal(t, cli.Usage, code, "%s %s: %s", name, args, errOut)
	assert.Contains(t, errOut, "onceward "+name+": ", args)
	assert.Contains(t, errOut, says, args)
	assert.NotContains(t, errOut, "hunter22", args)
}

// interrupted connects a command to a server that never answers. Ctrl-C must end it at once.
func interrupted(t *testing.T, name, args string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var open []net.Conn
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open = append(open, c)
			_, _ = c.Read(make([]byte, 1))
			cancel()
		}
	}()
	began := time.Now()
	code, _, errOut := execute(ctx, 0, append([]string{name},
		strings.Fields(strings.ReplaceAll(args, "ADDR", l.Addr().String()))...)...)
	assert.Equal(t, cli.Interrupted, code, "%s: %s", name, errOut)
	assert.Equal(t, "onceward "+name+": interrupted", lastLine(errOut))
	assert.Less(t, time.Since(began), 30*time.Second, name)
	_ = l.Close()
	<-ended
	for _, c := range open {
		_ = c.Close()
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// fits checks that the lines of the help fit the width, except examples.
func fits(t *testing.T, width int, name string) {
	t.Helper()
	code, out, _ := execute(t.Context(), width, name, "--help")
	assert.Equal(t, cli.Done, code, name)
	before, rest, _ := strings.Cut(out, "\nExamples:\n")
	_, after, _ := strings.Cut(rest, "\nFlags:\n")
	for line := range strings.Lines(before + "\n" + after) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width, line)
	}
}

func TestPlanFits(t *testing.T) {
	for _, width := range []int{60, 80} {
		_, out, _ := execute(t.Context(), width, "plan", "--rate", "2000", "--window", "3d")
		for line := range strings.Lines(out) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width,
				line)
		}
		assert.Contains(t, out, "compact")
	}
}
