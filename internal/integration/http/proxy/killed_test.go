package proxy_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// span is from the kill of a process until it was there again, or a request's from its first
// attempt until its answer.
type span struct{ from, to time.Time }

func (a span) meets(b span) bool { return !a.from.After(b.to) && !b.from.After(a.to) }

// monkey kills the proxy and the service by turns, at random moments, until it is told to stop, and
// counts.
func monkey(s *site, seed uint64, stop <-chan struct{}, n *atomic.Int64) (kills []span) {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // moments, and no secret
	for i := 0; ; i++ {
		pause := time.NewTimer(time.Duration(random.IntN(400)) * time.Millisecond)
		select {
		case <-stop:
			pause.Stop()
			return kills
		case <-pause.C:
		}
		from := time.Now()
		if i%2 == 0 {
			s.proxy.kill()
			s.startProxy()
		} else {
			s.service.kill()
			s.startService()
		}
		kills = append(kills, span{from, time.Now()})
		n.Add(1)
	}
}

// insist sends a request under one key until it is answered with 201.
func (s *site) insist(client *http.Client, key, body string) (took span, ok bool) {
	took.from = time.Now()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for deadline := time.After(2 * patience); ; {
		if status, _ := s.post(client, key, body); status == http.StatusCreated {
			took.to = time.Now()
			return took, true
		}
		select {
		case <-deadline:
			return took, false
		case <-pause.C:
		}
	}
}

// A proxy that is killed may have sent the head of a request, and not its body (RFC 9112, section
// 8). The service of the guide does not act on such a request.
func TestServiceOfTheGuideLeavesACutRequest(t *testing.T) {
	s := serve(t, strings.NewReplacer())
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.address)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "POST /payments HTTP/1.1\r\nHost: service\r\n"+
		"Onceward-Key: k\r\nContent-Length: 3\r\n\r\npa")
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Empty(t, answer)
	assert.Empty(t, s.effects())
}

// The proxy and the service are killed at random moments while clients send, and send again. No
// request is lost. A request is doubled only if a kill happened while it was under way, and then
// the copies have one Onceward-Key.
func TestKilled(t *testing.T) {
	const workers, each, least, lease = 8, 45, 10, 2 * time.Second
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	// The answer comes later than the effect, so that kills come between the two.
	late := strings.NewReplacer("self.send_response(201)",
		"__import__('time').sleep(0.03); self.send_response(201)")
	s := serve(t, late, "--lease", lease.String())
	var n atomic.Int64
	stop, killed := make(chan struct{}), make(chan []span, 1)
	go func() {
		var kills []span
		defer func() { killed <- kills }() // also when a process does not start
		kills = monkey(s, seed, stop, &n)
	}()
	var mu sync.Mutex
	spans := map[string]span{}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
			defer client.CloseIdleConnections()
			for i := 0; (i < each || n.Load() < least) && !t.Failed(); i++ {
				name := fmt.Sprintf("%d-%d", w, i)
				took, ok := s.insist(client, name, name)
				assert.True(t, ok, "%s has no answer", name)
				mu.Lock()
				spans[name] = took
				mu.Unlock()
			}
		})
	}
	all.Wait()
	close(stop)
	kills := <-killed
	effects := s.effects()
	doubled := 0
	for name, took := range spans {
		keys := effects[name]
		require.NotEmpty(t, keys, "%s is lost", name)
		for _, key := range keys {
			assert.Equal(t, keys[0], key, "one operation has two keys")
		}
		if len(keys) == 1 {
			continue
		}
		doubled++
		hit := 0
		for _, kill := range kills {
			if kill.meets(took) {
				hit++
			}
		}
		assert.LessOrEqual(t, len(keys)-1, hit, "%s is doubled without a kill", name)
	}
	assert.Len(t, effects, len(spans))
	assert.GreaterOrEqual(t, len(spans), workers*each)
	t.Logf("%d requests, %d kills: lost 0, doubled %d, each in the time of a kill",
		len(spans), len(kills), doubled)
}
