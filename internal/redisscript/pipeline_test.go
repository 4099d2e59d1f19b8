package redisscript_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redisscript"
)

// node is a server of a Cluster that answers GET as says tells it to. It answers the client's own
// questions so that the client takes the first node for the master of every slot.
type node struct {
	net.Listener
	mu   sync.Mutex
	got  []string // the keys that were asked for, in order
	says func(key string) string
}

// hangUp is the answer of a node that closes the connection instead.
const hangUp = ""

func newNode(t *testing.T) *node {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return &node{Listener: l}
}

func (n *node) serve(master string) {
	for {
		conn, err := n.Accept()
		if err != nil {
			return
		}
		go n.talk(conn, master)
	}
}

func (n *node) talk(conn net.Conn, master string) {
	defer func() { _ = conn.Close() }()
	for r := bufio.NewReader(conn); ; {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		answer := "-ERR unknown command\r\n"
		switch strings.ToLower(args[0]) {
		case "cluster":
			host, port, _ := net.SplitHostPort(master)
			answer = fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n",
				len(host), host, port)
		case "get":
			n.mu.Lock()
			n.got = append(n.got, args[1])
			n.mu.Unlock()
			answer = n.says(args[1])
		}
		if answer == hangUp {
			return
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

func readCommand(r *bufio.Reader) ([]string, error) {
	number := func(mark byte) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil || len(line) < 2 || line[0] != mark {
			return 0, fmt.Errorf("%q: %w", line, io.ErrUnexpectedEOF)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number('*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := number('$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}

// A command that is redirected out of a batch that then fails goes to its new node alone.
func TestExecSendsNoCommandToTwoNodes(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]string{
		"a reply that does not come": hangUp,
		"a slot that is on its way":  "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
		"no word of failing":         "$3\r\nold\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := newNode(t), newNode(t)
			from.says = func(key string) string {
				if key == "moved" {
					return "-MOVED 4711 " + to.Addr().String() + "\r\n"
				}
				return second
			}
			to.says = func(string) string { return "$3\r\nnew\r\n" }
			go from.serve(from.Addr().String())
			go to.serve(from.Addr().String())
			client := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{from.Addr().String()}, Protocol: 2, DisableIdentity: true,
				MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 2 * time.Millisecond,
			})
			t.Cleanup(func() { _ = client.Close() })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()

			pipe := client.Pipeline()
			stays, moved := pipe.Get(ctx, "stays"), pipe.Get(ctx, "moved")
			if second == hangUp { // after the redirection
				pipe.Discard()
				moved, stays = pipe.Get(ctx, "moved"), pipe.Get(ctx, "stays")
			}
			cmds, err := redisscript.Exec(ctx, client, pipe)

			v, movedErr := moved.Result()
			assert.Equal(t, "new", v, "the moved key answers")
			assert.NoError(t, movedErr, "the moved key answers")
			failed := !strings.HasPrefix(second, "$")
			v, stayErr := stays.Result()
			assert.Equal(t, failed, stayErr != nil, "the other key answers %q, %v; the pipeline %v",
				v, stayErr, err)
			assert.Equal(t, failed, err != nil, "the other key answers %q, %v; the pipeline %v", v,
				stayErr, err)
			assert.False(t, !failed && v != "old", "the other key answers %q, %v; the pipeline %v",
				v, stayErr, err)
			if assert.Len(t, cmds, 2, "commands") {
				assert.False(t, cmds[0].Err() != nil && cmds[1].Err() != nil, "commands: %v", cmds)
			}
			from.mu.Lock()
			defer from.mu.Unlock()
			to.mu.Lock()
			defer to.mu.Unlock()
			assert.Len(t, from.got, 2, "requests to the old and the new node")
			assert.Len(t, to.got, 1, "requests to the old and the new node")
		})
	}
}
