package broker

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// given returns the options of a command line.
func given(t *testing.T, args ...string) (*Options, error) {
	t.Helper()
	o := new(Options)
	err := cli.Parse(&cli.Command{Use: "look", Flags: o.Flags,
		Check: func([]string) error { return o.Check() }}, args...)
	return o, err
}

// A broker that accepts the connection and never answers is named in the error. kgo's own error
// only says that its client is closed.
func TestOpenNamesASilentBroker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	o, err := given(t, "--brokers", l.Addr().String())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = o.Open(ctx, "test")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "no answer in time from "+l.Addr().String())
}

func TestCheckWithoutBrokers(t *testing.T) {
	_, err := given(t, "--tls")
	require.ErrorContains(t, err, "--brokers is missing")
}
