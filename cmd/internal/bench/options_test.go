package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/redisadapter"
)

func TestParseOptionsRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const local = "--redis redis://127.0.0.1:1 "
	inFile := "--sql sqlite:" + file + " "
	for args, want := range map[string]string{
		"":                                           "--redis or --sql is missing",
		"--redis redis://u:hunter22/x@h":             "must be escaped",
		local + "--sql sqlite:x":                     "exclude each other",
		local + "--schema s":                         "--schema needs --sql",
		inFile + "--layout full":                     "need --redis",
		inFile + "--window 1h":                       "need --redis",
		inFile + "--force":                           "need --redis",
		inFile + "--schema a;b":                      "--schema ",
		local + "--layout thin":                      "one of full, compact",
		local + "--layout compact --result 1":        "keeps no results",
		local + "--for 1ms":                          "--for is 1ms",
		local + "--window 1s":                        "--window is 1s",
		local + "--for 1h --window 10m":              "--window is 10m0s",
		local + "--workers -1":                       "--workers is -1",
		local + "--workers 5000":                     "--workers is 5000",
		local + "--batch 0":                          "--batch is 0",
		local + "--batch 1025":                       "--batch is 1025",
		local + "--rate -1":                          "--rate is -1",
		local + "--rate NaN":                         "--rate is NaN",
		local + "--dup 1":                            "--dup is 1",
		local + "--dup 100%":                         "--dup is 1",
		local + "--dup x":                            "a share is written as 0.05 or 5%",
		local + "--result -1":                        "--result is -1",
		local + "--result 2000000":                   "--result is 2000000",
		local + "--max-keys 99":                      "--max-keys is 99",
		local + "--max-keys 1000 --batch 100":        "--max-keys is 1000",
		local + "more":                               `unexpected argument "more"`,
		"--redis redis://u:hunter22@10.1.2.3 --json": "--json needs --yes",
		"--sql postgres://u:hunter22@db/x --json":    "--json needs --yes",
	} {
		_, err := parse(strings.Fields(args)...)
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
}

func TestParseOptions(t *testing.T) {
	o, err := parse(strings.Fields("--redis redis://10.1.2.3 --yes --json --for 10m --layout compact --dup 5% --workers 64")...)
	if err != nil || o.Layout != redisadapter.Compact || o.Dup != 0.05 ||
		o.Window != 20*time.Minute || o.Server.MinPool != 64 || o.rounds() != most {
		t.Errorf("%v, %+v", err, o)
	}
	if o, err = parse(strings.Fields("--redis redis://10.1.2.3")...); err != nil ||
		o.Workers != defaultWorkers || o.Window != leastWindow || o.rounds() != 5 {
		t.Errorf("%v, %+v", err, o)
	}
}
