package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseOptions(t *testing.T) {
	o, err := parse("--naive=false", "--lease", "1s", "--duplicates", "0", "--seed", "9")
	require.NoError(t, err)
	assert.False(t, o.Naive)
	assert.Equal(t, time.Second, o.Lease)
	assert.Equal(t, 0, o.Duplicates)
	assert.EqualValues(t, 9, o.Seed)
}

func TestParseOptionsRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--messages 0":            "--messages is 0",
		"--messages 2000000":      "--messages is 2000000",
		"--messages x":            "--messages",
		"--duplicates -1":         "--duplicates is -1",
		"--duplicates 101":        "--duplicates is 101",
		"--lease 1ms":             "--lease is 1ms",
		"--lease 2h":              "--lease is 2h",
		"--lease 0":               "--lease is 0s",
		"--takes 0":               "--takes is 0s",
		"--takes 2h":              "--takes is 2h",
		"--takes 1m --timeout 1m": "leaves nothing of --timeout",
		"--listen=":               `--listen is ""`,
		"--listen :8080":          `--listen is ":8080"`,
		"--listen 0.0.0.0:8080":   "of this machine",
		"--listen 127.0.0.1":      `--listen is "127.0.0.1"`,
		"--timeout 1ms":           "--timeout is 1ms",
		"--break legs":            "one of record, effect",
		"-what":                   "unknown shorthand flag",
		"twice":                   `unexpected argument "twice"`,
	} {
		_, err := parse(strings.Fields(args)...)
		assert.ErrorContains(t, err, want, args)
	}
}
