package demo

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
)

func TestParseOptions(t *testing.T) {
	o, err := parse([]string{"--kafka", "a:1, b:2", "--redis=c:3", "--postgres",
		"postgres://u@h/d", "--file", "x", "--key", "data.id",
		"--naive", "--lease", "1s", "--duplicates", "0", "--seed", "9"}...)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.Kafka, []string{"a:1", "b:2"}) || !slices.Equal(o.Redis, []string{"c:3"}) ||
		o.Key != "data.id" ||
		!o.Naive || o.Lease != time.Second || o.Duplicates != 0 || o.Seed != 9 {
		t.Errorf("%+v", o)
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--messages 0":                  "--messages is 0",
		"--messages 2000000":            "--messages is 2000000",
		"--messages x":                  "--messages",
		"--file=":                       "--file is empty",
		"--file a":                      "--file needs --key",
		"--key a":                       "--key needs --file",
		"--file a --key b --messages":   "needs an argument",
		"--file a --key b --messages 5": "exclude each other",
		"--duplicates -1":               "--duplicates is -1",
		"--duplicates 101":              "--duplicates is 101",
		"--lease 1ms":                   "--lease is 1ms",
		"--lease 2h":                    "--lease is 2h",
		"--lease 0":                     "--lease is 0s",
		"--takes 0":                     "--takes is 0s",
		"--takes 2h":                    "--takes is 2h",
		"--takes 1m --timeout 1m":       "leaves nothing of --timeout",
		"--listen=":                     `--listen is ""`,
		"--listen :8080":                `--listen is ":8080"`,
		"--listen 0.0.0.0:8080":         "of this machine",
		"--listen 127.0.0.1":            `--listen is "127.0.0.1"`,
		"--timeout 1ms":                 "--timeout is 1ms",
		"--break legs":                  "one of record, effect",
		"--kafka=":                      `--kafka: "" is not host:port`,
		"--kafka a:1,b":                 `--kafka: "b" is not host:port`,
		"--redis :6379":                 `--redis: ":6379" is not host:port`,
		"--postgres=":                   "--postgres is not a postgres:// URL",
		"--postgres mysql://h/d":        "--postgres is not a postgres:// URL",
		"-what":                         "unknown shorthand flag",
		"twice":                         `unexpected argument "twice"`,
	} {
		_, err := parse(strings.Fields(args)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
}

// TestMainRefuses: one clear line, exit code 2, and nothing has been started.
func TestMainRefuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.ndjson")
	if err := os.WriteFile(bad, []byte("{\"id\":1}\n{\"other\":2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--kafka " + closed: "--kafka " + closed + ": ",
		"--redis " + closed: "--redis " + closed + ": ",
		"--postgres postgres://u:secret@" + closed + "/d": "--postgres: ",
		"--file " + bad + " --key id":                     "bad.ndjson: line 2: has no field \"id\"",
		"--file /nonexistent --key id":                    "--file: open /nonexistent",
		"--lease 1":                                       "--lease",
	} {
		var out, errOut bytes.Buffer
		code := execute(t.Context(), strings.Fields(args), &out, &errOut)
		text := errOut.String()
		if code != cli.Usage || !strings.HasPrefix(text, "onceward demo: ") ||
			!strings.Contains(text, want) {
			t.Errorf("%s: exit code %d, %q; want %d and %q", args, code, text, cli.Usage, want)
		}
		if strings.Count(text, "\n") != 1 || out.Len() > 0 || strings.Contains(text, "secret") {
			t.Errorf("%s: wrote %q and %q", args, out.String(), text)
		}
	}
}
