package redisproxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redisproxy"
)

func asTimeout(err error, target *net.Error) bool {
	return errors.As(err, target) && (*target).Timeout()
}

// echo answers with the command, so that every reply shows which command it belongs to.
func echo(command string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(command), command) }

// fired returns a rule's OnFire and a channel that it writes to.
func fired() (func(redisproxy.Request), <-chan redisproxy.Request) {
	c := make(chan redisproxy.Request, 100)
	return func(r redisproxy.Request) { c <- r }, c
}

// TestRepliesPassUntouched: every type of reply reaches the client byte for byte and
// counts as one reply. Otherwise the next command's fault would hit the wrong reply.
func TestRepliesPassUntouched(t *testing.T) {
	replies := []string{
		"+OK\r\n", "-ERR no\r\n", ":42\r\n", "$-1\r\n", "$0\r\n\r\n", "*-1\r\n",
		"*2\r\n:1\r\n*1\r\n$-1\r\n",
		"_\r\n", "#f\r\n", ",1.5\r\n", "(123456789012345678901234567890\r\n", "!3\r\nERR\r\n",
		"=5\r\ntxt:x\r\n", "%1\r\n+k\r\n~1\r\n+v\r\n", "|1\r\n+ttl\r\n:1\r\n+OK\r\n",
		">2\r\n+invalidate\r\n*1\r\n+k\r\n+after a push\r\n",
		"$70000\r\n" + strings.Repeat("x", 70000) + "\r\n",
	}
	server := newFakeServer(t, func(command string) string {
		var i int
		if _, err := fmt.Sscanf(command, "GET %d", &i); err != nil {
			return "-ERR\r\n"
		}
		return replies[i]
	})
	p := redisproxy.Start(t, server.addr)
	c := dial(t, p)
	var commands []string
	for i, reply := range replies {
		commands = append(commands, fmt.Sprintf("GET %d", i))
		c.send(commands[i])
		c.want(reply)
	}
	c.send(commands...)
	c.want(strings.Join(replies, ""))
	s := p.Stats()
	assert.Equal(t, 2*len(replies), s.Requests, "stats %+v", s)
	assert.Equal(t, s.Requests, s.Replies, "stats %+v", s)
	assert.Equal(t, 2, s.Pushes, "stats %+v", s)
	// The last command of a pipeline gets its own fault, not that of its neighbor.
	p.SetRules(redisproxy.Rule{Match: func(r redisproxy.Request) bool {
		return string(r.Args[1]) == "16"
	}, Action: redisproxy.DropReply})
	c.send(commands...)
	want := strings.Join(replies[:16], "")
	c.want(want)
	got, err := c.rest()
	assert.Empty(t, got, "after the dropped reply")
	assert.ErrorIs(t, err, syscall.ECONNRESET, "after the dropped reply")
}

func TestFaults(t *testing.T) {
	pipeline := []string{"SET a 1", "SET b 2", "SET c 3", "SET d 4"}
	onC := func(r redisproxy.Request) bool { return string(r.Args[1]) == "c" }
	tests := []struct {
		name     string
		rule     redisproxy.Rule
		delivers string // before the end
		end      error  // nil is the end of the stream
		executed int    // of the pipeline, from the front, at least
		withheld int    // from here on no command may be executed
		stats    redisproxy.Stats
	}{
		{
			"reply dropped", redisproxy.Rule{Match: onC, Action: redisproxy.DropReply},
			echo("SET a 1") + echo("SET b 2"), syscall.ECONNRESET,
			3, 4, redisproxy.Stats{RepliesDropped: 1},
		},
		{
			"reply torn", redisproxy.Rule{Match: onC, Action: redisproxy.TearReply, Bytes: 5},
			echo("SET a 1") + echo("SET b 2") + echo("SET c 3")[:5], nil, 3, 4,
			redisproxy.Stats{RepliesTorn: 1},
		},
		{
			"request dropped", redisproxy.Rule{Match: onC, Action: redisproxy.DropRequest},
			echo("SET a 1") + echo("SET b 2"), syscall.ECONNRESET,
			2, 2, redisproxy.Stats{RequestsDropped: 1},
		},
		{
			"pipeline cut", redisproxy.Rule{Position: 3, Action: redisproxy.CutPipeline},
			echo("SET a 1") + echo("SET b 2") + echo("SET c 3"), nil,
			3, 3, redisproxy.Stats{PipelinesCut: 1},
		},
		{
			"first request dropped",
			redisproxy.Rule{Command: "set", Action: redisproxy.DropRequest},
			"", syscall.ECONNRESET, 0, 0, redisproxy.Stats{RequestsDropped: 1},
		},
	}
	for _, tt := range tests {
		for _, hang := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hang=%v", tt.name, hang), func(t *testing.T) {
				server := newFakeServer(t, echo)
				p := redisproxy.Start(t, server.addr)
				tt.rule.Hang = hang
				onFire, acted := fired()
				tt.rule.OnFire = onFire
				p.SetRules(tt.rule)
				c := dial(t, p)
				c.send(pipeline...)
				c.want(tt.delivers)
				<-acted
				if hang {
					c.send("SET e 5") // into the hole
					c.wantSilence()
					assert.False(t, server.has("SET e 5"),
						"the server got a command through the black hole")
				} else {
					got, err := c.rest()
					assert.Empty(t, got, "after the fault")
					assert.ErrorIs(t, err, tt.end, "after the fault")
				}
				for i, command := range pipeline {
					has := server.has(command)
					assert.False(t, i < tt.executed && !has, "%s executed: %v", command, has)
					assert.False(t, i >= tt.withheld && has, "%s executed: %v", command, has)
				}
				s := p.Stats()
				assert.Equal(t, tt.stats.RepliesDropped, s.RepliesDropped, "stats %+v", s)
				assert.Equal(t, tt.stats.RepliesTorn, s.RepliesTorn, "stats %+v", s)
				assert.Equal(t, tt.stats.RequestsDropped, s.RequestsDropped, "stats %+v", s)
				assert.Equal(t, tt.stats.PipelinesCut, s.PipelinesCut, "stats %+v", s)
			})
		}
	}
}

// TestTearAtEveryByte: the client gets each prefix of a reply, and no byte more.
func TestTearAtEveryByte(t *testing.T) {
	server := newFakeServer(t, echo)
	p := redisproxy.Start(t, server.addr)
	whole := echo("GET k")
	for n := range len(whole) + 1 {
		p.SetRules(redisproxy.Rule{Command: "GET", Action: redisproxy.TearReply, Bytes: n})
		c := dial(t, p)
		c.send("GET k")
		got, err := c.rest()
		assert.Equal(t, whole[:n], got, "torn at %d", n)
		assert.NoError(t, err, "torn at %d", n)
	}
	s := p.Stats()
	assert.Equal(t, len(whole)+1, s.RepliesTorn, "stats %+v", s)
	assert.Equal(t, s.RepliesTorn, s.Fired["TearReply GET"], "stats %+v", s)
}

func TestDelays(t *testing.T) {
	server := newFakeServer(t, echo)
	p := redisproxy.Start(t, server.addr)
	for _, action := range []redisproxy.Action{redisproxy.DelayReply, redisproxy.DelayRequest} {
		t.Run(action.String(), func(t *testing.T) {
			onFire, acted := fired()
			const delay = 50 * time.Millisecond
			p.SetRules(redisproxy.Rule{Command: "SLOW", Action: action, Delay: delay,
				OnFire: onFire})
			c := dial(t, p)
			start := time.Now()
			c.send("SLOW "+action.String(), "GET k")
			<-acted
			assert.False(t, action == redisproxy.DelayReply && !server.has("SLOW DelayReply"),
				"the reply is late, so the server must have the command")
			assert.False(t,
				action == redisproxy.DelayRequest && server.has("SLOW DelayRequest") &&
					time.Since(start) < delay, "the server has the command early")
			c.want(echo("SLOW "+action.String()) + echo("GET k"))
			assert.GreaterOrEqual(t, time.Since(start), delay)
		})
	}
	s := p.Stats()
	assert.Equal(t, 2, s.Delayed, "stats %+v", s)
	assert.Equal(t, 4, s.Replies, "stats %+v", s)
}

// TestPosition: a command alone has position 1, even if the reply to the command before
// it has only just arrived; the commands of a pipeline are counted.
func TestPosition(t *testing.T) {
	server := newFakeServer(t, echo)
	p := redisproxy.Start(t, server.addr)
	var mu sync.Mutex
	var positions []int
	p.SetRules(redisproxy.Rule{Action: redisproxy.DropRequest,
		Match: func(r redisproxy.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			positions = append(positions, r.Position)
			return false
		}})
	c := dial(t, p)
	const alone = 3000
	for range alone {
		c.send("GET a")
		c.want(echo("GET a"))
	}
	c.send("GET a", "GET b", "GET c")
	c.want(echo("GET a") + echo("GET b") + echo("GET c"))
	mu.Lock()
	defer mu.Unlock()
	for i, got := range positions {
		require.Equal(t, max(1, i-alone+1), got, "command %d has position %d", i, got)
	}
}

// TestUnmatchedCommands: after a command that has no reply, or several, the proxy
// touches nothing on that connection.
func TestUnmatchedCommands(t *testing.T) {
	for command, replies := range map[string]string{
		"SUBSCRIBE a b":    ">3\r\n+subscribe\r\n+a\r\n:1\r\n>3\r\n+subscribe\r\n+b\r\n:2\r\n",
		"unsubscribe a b":  "*3\r\n+unsubscribe\r\n+a\r\n:1\r\n*3\r\n+unsubscribe\r\n+b\r\n:0\r\n",
		"MONITOR":          "+OK\r\n+1.2 [0 127.0.0.1:1] \"GET\"\r\n",
		"CLIENT REPLY off": "",
	} {
		t.Run(command, func(t *testing.T) {
			p := redisproxy.Start(t, newFakeServer(t, func(c string) string {
				if c == command {
					return replies
				}
				return echo(c)
			}).addr)
			p.SetRules(redisproxy.Rule{Command: "PING", Action: redisproxy.DropReply, Skip: 1})
			c := dial(t, p)
			c.send("PING 1", command, "PING 2")
			c.want(echo("PING 1") + replies + echo("PING 2"))
			c.send("PING 3")
			c.want(echo("PING 3"))
		})
	}
}

func TestClose(t *testing.T) {
	server := newFakeServer(t, echo)
	p, err := redisproxy.New(server.addr)
	require.NoError(t, err)
	onFire, acted := fired()
	p.SetRules(
		redisproxy.Rule{Command: "HOLE", Action: redisproxy.DropReply, Hang: true, OnFire: onFire},
		redisproxy.Rule{Command: "LATE", Action: redisproxy.DelayReply, Delay: time.Hour,
			OnFire: onFire},
	)
	idle, hole, late := dial(t, p), dial(t, p), dial(t, p)
	idle.send("GET k")
	idle.want(echo("GET k"))
	hole.send("HOLE k")
	late.send("LATE k")
	<-acted
	<-acted
	p.Close()
	p.Close()
	for _, c := range []*client{idle, hole, late} {
		got, err := c.rest()
		assert.Empty(t, got, "after Close: %v", err)
		assert.False(t, err != nil && !errors.Is(err, syscall.ECONNRESET), "after Close: %q, %v",
			got, err)
	}
	var d net.Dialer
	if conn, err := d.DialContext(t.Context(), "tcp", p.Addr()); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
	s := p.Stats()
	assert.Equal(t, 3, s.Requests, "stats %+v", s)
	assert.Equal(t, 1, s.Replies, "stats %+v", s)
	assert.Equal(t, 1, s.RepliesDropped, "stats %+v", s)
	assert.Equal(t, 1, s.Abandoned, "stats %+v", s)
}

// TestServerGone: the client of a dead server sees the end of the stream, and so does
// the client of a server that dies later.
func TestServerGone(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := redisproxy.Start(t, l.Addr().String())
	c := dial(t, p)
	conn, err := l.Accept()
	require.NoError(t, err)
	c.send("GET k")
	_, err = io.ReadFull(conn, make([]byte, len(encode("GET k"))))
	require.NoError(t, err)
	_ = conn.Close()
	_ = l.Close()
	got, err := c.rest()
	assert.Empty(t, got, "server died")
	assert.NoError(t, err, "server died")
	got, err = dial(t, p).rest()
	assert.Empty(t, got, "server dead: %v", err)
	assert.False(t, err != nil && !errors.Is(err, syscall.ECONNRESET), "server dead: %q, %v", got,
		err)
}
