package keys

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
)

func TestParseOptions(t *testing.T) {
	t.Setenv("SECRET", "0123456789abcdef")
	o, err := options("resolve", strings.Fields("--namespace n order-7 --done --redis redis://r --scope s --window 1h --secret-env SECRET --yes")...)
	require.NoError(t, err)
	id, _ := driver.NewID("n", "s", "order-7")
	assert.Equal(t, id, o.ID)
	assert.Equal(t, "order-7", o.typed)
	assert.True(t, o.Done)
	assert.Equal(t, time.Hour, o.Window)
	assert.Equal(t, "0123456789abcdef", string(o.Secret))
	assert.Equal(t, time.Hour, o.Hold)
	assert.True(t, o.Yes)
	o, err = options("forget", strings.Fields("--id 00112233445566778899aabbccddeeff --redis redis://r")...)
	require.NoError(t, err)
	assert.EqualValues(t, 0xff, o.ID[15])
	assert.Equal(t, "", o.Key)
}

func TestParseOptionsRefuses(t *testing.T) {
	const one = "k --namespace n --redis redis://r "
	for args, want := range map[string]string{
		"inspect --redis redis://r":                                                     "KEY is missing",
		"forget k --redis redis://r":                                                    "--namespace is missing",
		"inspect k --tool t --redis redis://r":                                          "--namespace is missing",
		"resolve --all --older 1h --redis redis://r":                                    "one of --done and --released",
		"resolve --all k --done --redis redis://r":                                      `unexpected argument "k"`,
		"resolve --all --tool t --done --redis redis://r":                               "--all is of all keys",
		"resolve k --namespace n --done --label x --redis redis://r":                    "--older and --label need --all",
		"inflight --for -1s --redis redis://r":                                          "--for is -1s",
		"explain k --brokers x --redis redis://r":                                       `"x" is not host:port`,
		"inspect k l --namespace n --redis redis://r":                                   `unexpected argument "l"`,
		"inspect k --namespace a/b --redis redis://r":                                   "--namespace has '/'",
		"inspect k --namespace n":                                                       "--redis or --sql is missing",
		"inspect --id 12 --redis redis://r":                                             `--id is "12"`,
		"inspect --id 00112233445566778899aabbccddeeff --redis redis://r --namespace n": "leave --namespace, --scope and",
		"inspect k --id 00112233445566778899aabbccddeeff --redis redis://r":             `unexpected argument "k"`,
		"inspect --marks --id 00112233445566778899aabbccddeeff --sql u@tcp(h)/d":        "--marks needs KEY",
		"inspect " + one + "--marks":                                                    "needs --sql",
		"inspect " + one + "--table t":                                                  "need --sql",
		"inspect k --namespace n --sql u@tcp(h)/d --prefix x":                           "need --redis",
		"inspect " + one + "--secret-env NOT_SET":                                       "--secret-env: the environment has no NOT_SET",
		"inspect " + one + "--yes":                                                      "unknown flag: --yes",
		"inflight k --redis redis://r":                                                  `unexpected argument "k"`,
		"inflight --redis redis://r --limit 0":                                          "--limit is 0",
		"uncertain --redis redis://r --older -1s":                                       "--older is -1s",
		"resolve " + one:                            "one of --done and --released",
		"resolve " + one + "--done --released":      "one of --done and --released",
		"resolve " + one + "--released --window 1h": "--window goes with --done",
		"resolve " + one + "--done --window -1h":    "--window is -1h",
		"forget " + one + "--json":                  "--json needs --yes",
		"forget " + one + "--hold -1s":              "--hold is -1s",
	} {
		fields := strings.Fields(args)
		_, err := options(fields[0], fields[1:]...)
		assert.ErrorContains(t, err, want, args)
	}
}
