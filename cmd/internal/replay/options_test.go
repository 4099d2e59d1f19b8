package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/broker"
)

const needed = "--brokers a:1,b:2 --topic dead --redis redis://r --namespace n --window 1h "

func TestParseOptions(t *testing.T) {
	t.Setenv("KAFKA_PASSWORD", "k")
	t.Setenv("REDIS_PASSWORD", "r")
	t.Setenv("SECRET", "0123456789abcdef")
	o, err := parse(strings.Fields(needed +
		"--sasl-user u --sasl-password-env KAFKA_PASSWORD --redis-password-env REDIS_PASSWORD " +
		"--secret-env SECRET --id x --id y --tls -n")...)
	require.NoError(t, err)
	assert.Equal(t, []string{"a:1", "b:2"}, o.Kafka.Brokers)
	assert.Equal(t, DefaultGroup, o.Group)
	assert.Equal(t, (broker.SASL{User: "u", Password: "k"}), o.Kafka.SASL)
	assert.Equal(t, "0123456789abcdef", string(o.Secret))
	assert.Equal(t, []string{"x", "y"}, o.IDs)
	assert.True(t, o.DryRun)
	assert.True(t, o.Kafka.TLS.On)
	assert.Equal(t, time.Hour, o.Window)
	assert.Equal(t, "ow", o.Prefix)
}

func TestParseOptionsRefuses(t *testing.T) {
	t.Setenv("KAFKA_PASSWORD", "k")
	for args, want := range map[string]string{
		"--topic dead":                                "--brokers, --redis, --namespace and --window are missing",
		needed + "--brokers a":                        `--brokers: "a" is not host:port`,
		needed + "--topic=":                           "--topic is missing",
		needed + "--group=":                           "--group is empty",
		needed + "--redis=":                           "--redis is missing",
		needed + "--namespace=":                       "--namespace is missing",
		needed + "--window 0":                         "--window is not positive",
		needed + "--max -1":                           "--max is -1",
		needed + "--id=":                              "--id",
		needed + "--tls-ca x":                         "need --tls",
		needed + "--tls --tls-cert x":                 "need each other",
		needed + "--sasl-user u":                      "--sasl-user and --sasl-password-env need each other",
		needed + "--sasl-password-env KAFKA_PASSWORD": "--sasl-user and --sasl-password-env need each other",
		needed + "--sasl-password-env UNSET_PASSWORD": "--sasl-password-env: the environment has no UNSET_PASSWORD",
		needed + "--secret-env UNSET_SECRET":          "--secret-env: the environment has no UNSET_SECRET",
		needed + "--redis-password-env UNSET":         "--redis-password-env: the environment has no UNSET",
		needed + "--sasl-mechanism plain":             "--sasl-mechanism needs --sasl-user",
		needed + "--sasl-user u --sasl-password-env KAFKA_PASSWORD --sasl-mechanism x": "one of plain, scram-sha-256, scram-sha-512",
		needed + "more":  `unexpected argument "more"`,
		needed + "-what": "unknown shorthand flag",
	} {
		_, err := parse(strings.Fields(args)...)
		assert.ErrorContains(t, err, want, args)
	}
}
