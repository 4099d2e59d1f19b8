package redisadapter_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestClockOutlivesItsAsker: one call asks the server for its time, and all calls use the answer.
// If that call's caller leaves before the answer has come, the others must still get it. Otherwise
// they would use scripts.
func TestClockOutlivesItsAsker(t *testing.T) {
	var times, scripts atomic.Int32
	hold := make(chan struct{})
	fake := redistest.Fake(t, func(args []string) string {
		switch strings.ToUpper(args[0]) {
		case "PING":
			return "+PONG\r\n"
		case "INFO":
			return infoReply(nil)
		case "TIME":
			times.Add(1)
			<-hold
			return "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"
		case "SET":
			return "$-1\r\n"
		}
		scripts.Add(1)
		return redistest.Answer("absent", 0, 0, "")
	})
	store, err := redisadapter.New(t.Context(), redistest.Client(t, fake), redisadapter.Options{})
	must(t, err)
	scripts.Store(0)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		store.Claim(ctx, []driver.ClaimRequest{request(1)})
	}()
	eventually(t, "the time is asked for", func() bool { return times.Load() == 1 })
	leave()
	<-left
	close(hold)
	begin := time.Now()
	eventually(t, "a plain claim", func() bool {
		before := scripts.Load()
		a := store.Claim(t.Context(), []driver.ClaimRequest{request(2)})[0]
		return a.Outcome == dedup.Acquired && scripts.Load() == before
	})
	n := times.Load()
	assert.EqualValues(t, 1, n, "the time was asked for %d times, within %v", n, time.Since(begin))
}

// TestClockOfEmbedded: the clock of an embedded server may be stopped, so a reading of it is valid
// only at once. The time that has passed since by our clock must not be added. If the next reading
// is late, the claim is made by a script.
func TestClockOfEmbedded(t *testing.T) {
	var late atomic.Bool
	var written, scripts atomic.Int32
	hold := make(chan struct{})
	fake := redistest.Fake(t, func(args []string) string {
		switch strings.ToUpper(args[0]) {
		case "PING":
			return "+PONG\r\n"
		case "INFO":
			return "-ERR section (server) is not supported\r\n"
		case "TIME":
			if late.Load() {
				<-hold
			}
			return "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"
		case "SET":
			written.Add(1)
			return "$-1\r\n"
		}
		scripts.Add(1)
		return redistest.Answer("absent", 0, 0, "")
	})
	store, err := redisadapter.New(t.Context(), redistest.Client(t, fake), redisadapter.Options{})
	must(t, err)
	scripts.Store(0)
	for n := range 20 {
		a := store.Claim(t.Context(), []driver.ClaimRequest{request(n)})[0]
		want := uint64(1_700_000_000_000 * 1024)
		assert.Equal(t, dedup.Acquired, a.Outcome,
			"claim %d: %v with fence %d, want %d", n, a.Outcome, a.Record.Fence, want)
		assert.Equal(t, want, a.Record.Fence, "claim %d: %v with fence", n, a.Outcome)
	}
	n := scripts.Load()
	assert.Zero(t, n, "%d scripts ran while the server told its time", n)
	late.Store(true)
	written.Store(0)
	store.Claim(t.Context(), []driver.ClaimRequest{request(21)})
	close(hold)
	assert.Zero(t, written.Load(),
		"while the time was not told: %d plain claims, %d scripts", written.Load(), scripts.Load())
	assert.EqualValues(t, 1, scripts.Load(),
		"while the time was not told: %d plain claims, %d scripts", written.Load(), scripts.Load())
}
