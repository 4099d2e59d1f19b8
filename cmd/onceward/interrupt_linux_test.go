package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/redisproxy"
)

// asCommand makes this test binary run as the command.
const asCommand = "ONCEWARD_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], cli.Standard()))
	}
	os.Exit(m.Run())
}

// lineBuffer has the lines of a process, and another goroutine can wait for them.
type lineBuffer chan string

func (l lineBuffer) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// await reads until text comes, and calls meanwhile in between.
func (l lineBuffer) await(t *testing.T, text string, meanwhile func()) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline, all := time.After(time.Minute), ""
	for !strings.Contains(all, text) {
		select {
		case part := <-l:
			all += part
		case <-tick.C:
			meanwhile()
		case <-deadline:
			t.Fatalf("no %q in %q", text, all)
		}
	}
}

// An interrupted bench removes its keys. If the server does not answer any more, a second interrupt
// ends it at once.
func TestInterruptTwice(t *testing.T) {
	m := miniredis.RunT(t)
	proxy := redisproxy.Start(t, m.Addr())
	exe, err := os.Executable()
	require.NoError(t, err)
	for _, hangs := range []bool{false, true} {
		cmd := exec.Command(exe, "bench", "--redis", "redis://"+proxy.Addr(), "--for", "1h")
		errOut := make(lineBuffer, 1000)
		cmd.Env, cmd.Stderr = append(os.Environ(), asCommand+"=1"), errOut
		var out bytes.Buffer
		cmd.Stdout = &out
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		errOut.await(t, "it writes keys", func() {})
		written(t, m)
		interrupt := func() { _ = cmd.Process.Signal(syscall.SIGINT) }
		if hangs {
			removing := make(chan struct{}, 1)
			proxy.SetRules(redisproxy.Rule{Command: "SCAN", Action: redisproxy.DelayReply,
				Delay: time.Hour, OnFire: func(redisproxy.Request) {
					select {
					case removing <- struct{}{}:
					default:
					}
				}})
			interrupt()
			<-removing
			errOut.await(t, "ended at once", interrupt)
		} else {
			interrupt()
			errOut.await(t, "interrupted", func() {})
		}
		err := cmd.Wait()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 130, exit.ExitCode())
		assert.False(t, out.Len() > 0)
		left := len(m.Keys())
		assert.Equal(t, hangs, (left > 0), "%d keys are left", left)
	}
}

// written waits until there are keys.
func written(t *testing.T, m *miniredis.Miniredis) {
	t.Helper()
	tick, deadline := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for len(m.Keys()) < 20 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("nothing is written")
		}
	}
}
