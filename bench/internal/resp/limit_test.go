package resp

import (
	"bufio"
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// counted answers a pipeline at once, and counts the client's reads and writes.
type counted struct {
	net.Conn // nil: any other call panics

	reply         []byte
	in            bytes.Reader
	writes, reads int
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes++
	c.in.Reset(c.reply)
	return len(p), nil
}

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return c.in.Read(p)
}

// This client is the limit for all others, so it must not waste anything.
func TestAPipelineIsOneWriteAndNoGarbage(t *testing.T) {
	const n = 256
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "0123456789abcdef0123456789abcdef0123"
	}
	claimed, completed := bytes.Repeat([]byte("$-1\r\n"), n),
		bytes.Repeat([]byte("$5\r\ntoken\r\n"), n)
	server := &counted{}
	c := &Conn{conn: server, in: bufio.NewReaderSize(server, readBuffer)}
	ctx, runs := t.Context(), 0
	allocs := testing.AllocsPerRun(100, func() {
		runs++
		server.reply = claimed
		c.ClaimNew(ctx, keys, "token", time.Minute)
		server.reply = completed
		c.Complete(ctx, keys, "token", "1", time.Minute)
	})
	// these are for watching ctx, once per pipeline; one per key would be 512
	assert.LessOrEqual(t, allocs, 32.0, "allocations for %d keys", n)
	assert.Equal(t, []int{2 * runs, 2 * runs}, []int{server.writes, server.reads})
}
