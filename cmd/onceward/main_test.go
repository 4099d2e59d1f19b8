package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/cmd/internal/cli"
)

func TestRun(t *testing.T) {
	for _, test := range []struct {
		args        string
		code        int
		out, errOut string
	}{
		{"", 2, "", "onceward COMMAND [flags]"},
		{"help", 0, "demo", ""},
		{"-h", 0, "demo", ""},
		{"demo -h", 0, "Exit codes:", ""},
		{"demo --messages 0", 2, "", "onceward demo: --messages is 0"},
		{"help", 0, "replay", ""},
		{"replay -h", 0, "Exit codes:", ""},
		{"replay", 2, "", "--brokers, --topic, --redis, --namespace and --window are missing"},
		{"plan --rate 10 --window 1h", 0, "compact", ""},
		{"plan", 2, "", "onceward plan: --rate and --window are missing"},
		{"bench", 2, "", "onceward bench: --redis or --sql is missing"},
		{"bench -h", 0, "Exit codes:", ""},
		{"bench --redis redis://127.0.0.1:1 --dup 1", 2, "", "onceward bench: --dup is 1"},
		{"inspect", 2, "", "onceward inspect: KEY is missing"},
		{"inspect -h", 0, "Exit codes:", ""},
		{"inflight", 2, "", "onceward inflight: --redis or --sql is missing"},
		{"doctor", 2, "", "onceward doctor: --redis, --sql, --brokers or --kafka-config is missing"},
		{"doctor -h", 0, "Exit codes:", ""},
		{"migrate", 2, "", "onceward migrate: --kind is missing"},
		{"migrate -h", 0, "Exit codes:", ""},
		{"migrate --dialect sqlite --kind fence --print sql", 0, "CREATE TABLE", ""},
		{"console", 2, "", "onceward console: --redis or --sql is missing"},
		{"console -h", 0, "Exit codes:", ""},
		{"console --redis redis://127.0.0.1:1 --listen 0.0.0.0:0", 2, "", "not of this machine alone"},
		{"proxy -h", 0, "Exit codes:", ""},
		{"proxy --unscoped --upstream http://127.0.0.1:1", 2, "", "onceward proxy: --redis is missing"},
		{"version", 0, "onceward ", ""},
		{"version", 0, ", go1.", ""},
		{"--version", 0, "commit ", ""},
		{"version x", 2, "", "unexpected argument"},
		{"version --json", 0, `"commit":`, ""},
		{"uncertin", 2, "", "onceward: unknown command \"uncertin\"; did you mean uncertain?"},
		{"help uncertin", 2, "", "unknown command \"uncertin\"; did you mean uncertain?"},
		{"help dance", 2, "", "unknown command \"dance\"; onceward --help lists the commands"},
		{"help uncertain", 0, "Exit codes:", ""},
		{"completion", 2, "", "onceward completion [flags]\n"},
		{"completion dance", 2, "", "onceward completion --help lists the commands"},
		{"completion bash", 0, "bash completion", ""},
		{"inspect -redis x", 2, "", "-redis: the names of flags have two dashes: --redis"},
		{"inspect --namspace x", 2, "", "did you mean --namespace?"},
		{"inspect --nothing-like-it x", 2, "", "onceward inspect --help lists the flags"},
		{"uncertain --older 3x", 2, "", "a duration is written as 30s, 10m, 36h or 7d"},
		{"plan --rate x", 2, "", `--rate is "x"; a number is wanted`},
		{"uncertain --limit 1.5", 2, "", `--limit is "1.5"; a whole number is wanted`},
		{"dance", 2, "", `unknown command "dance"; onceward --help lists the commands`},
	} {
		var out, errOut bytes.Buffer
		code := run(strings.Fields(test.args), &cli.Streams{Out: &out, Err: &errOut})
		assert.Equal(t, test.code, code, "onceward %s: exit code %d, %q, %q", test.args, code,
			out.String(), errOut.String())
		assert.Contains(t, out.String(), test.out, "onceward %s: exit code %d, %q, %q", test.args,
			code, out.String(), errOut.String())
		assert.Contains(t, errOut.String(), test.errOut, "onceward %s: exit code %d, %q, %q",
			test.args, code, out.String(), errOut.String())
		assert.Equal(t, (errOut.Len() == 0), (test.errOut == ""),
			"onceward %s: standard error %q", test.args, errOut.String())
	}
}
