package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	for _, test := range []struct {
		args        string
		code        int
		out, errOut string
	}{
		{"", 2, "", "Usage: onceward"},
		{"help", 0, "demo", ""},
		{"-h", 0, "demo", ""},
		{"demo -h", 0, "Exit code", ""},
		{"demo -messages 0", 2, "", "onceward demo: -messages is 0"},
		{"help", 0, "replay", ""},
		{"replay -h", 0, "Exit code", ""},
		{"replay", 2, "", `onceward replay: -brokers: "" is not host:port`},
		{"plan -rate 10 -window 1h", 0, "compact", ""},
		{"plan", 2, "", "onceward plan: -rate is missing"},
		{"bench", 2, "", "onceward bench: -redis or -sql is missing"},
		{"bench -h", 0, "Exit code", ""},
		{"bench -redis redis://127.0.0.1:1 -dup 1", 2, "", "onceward bench: -dup is 1"},
		{"inspect", 2, "", "onceward inspect: KEY is missing"},
		{"inspect -h", 0, "Exit code", ""},
		{"inflight", 2, "", "onceward inflight: -redis or -sql is missing"},
		{"doctor", 2, "", "onceward doctor: -redis, -sql, -brokers or -kafka-config is missing"},
		{"doctor -h", 0, "Exit code", ""},
		{"migrate", 2, "", `onceward migrate: -kind is ""`},
		{"migrate -h", 0, "Exit code", ""},
		{"migrate -dialect sqlite -kind fence -print sql", 0, "CREATE TABLE", ""},
		{"completion zsh", 0, ":directory:_files", ""},
		{"completion bash", 0, "migrate) flags='apply dialect drop json kind new-file", ""},
		{"watch", 2, "", "onceward watch: -metrics, -redis or -sql is missing"},
		{"watch -h", 0, "Exit code", ""},
		{"completion", 2, "", "one of bash, zsh, fish is wanted"},
		{"completion bash", 0, "'doctor -kafka-config')", ""},
		{"completion bash", 0, "'inspect -namespace') return", ""},
		{"completion fish", 0, "-a uncertain -d 'the keys of which", ""},
		{"console", 2, "", "onceward console: -redis or -sql is missing"},
		{"console -h", 0, "Exit code", ""},
		{"console -redis redis://127.0.0.1:1 -listen 0.0.0.0:0", 2, "", "-remote allows it"},
		{"version", 0, "onceward ", ""},
		{"version", 0, ", go1.", ""},
		{"--version", 0, "commit ", ""},
		{"version x", 2, "", "unexpected argument"},
		{"dance", 2, "", `unknown command "dance"`},
	} {
		var out, errOut bytes.Buffer
		code := run(strings.Fields(test.args), &out, &errOut)
		if code != test.code || !strings.Contains(out.String(), test.out) ||
			!strings.Contains(errOut.String(), test.errOut) {
			t.Errorf("onceward %s: exit code %d, %q, %q", test.args, code, out.String(),
				errOut.String())
		}
		if (test.errOut == "") != (errOut.Len() == 0) {
			t.Errorf("onceward %s: standard error %q", test.args, errOut.String())
		}
	}
}
