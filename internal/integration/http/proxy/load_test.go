package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
)

// side is a way to the service.
type side struct {
	name, url, path string
	key             func(round, worker, i int) string

	took   []time.Duration
	speeds []float64 // requests a second, by round
}

// BenchmarkProxy sends to a bare service, and through the proxy: without a key, with a new key, and
// with a key that is done. The sides take turns in every round. Latencies are in milliseconds,
// over all rounds; the ratio is the median of the rounds' throughputs compared with bare.
func BenchmarkProxy(b *testing.B) {
	const workers, each, rounds = 8, 100, 7
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid\n")
	}))
	b.Cleanup(service.Close)
	listen := free(b)
	file := filepath.Join(b.TempDir(), "proxy.yaml")
	require.NoError(b, os.WriteFile(file,
		[]byte("routes:\n- {path: /payments}\n- {path: /plain, plain: true}\n"), 0o600))
	proxy := &process{TB: b, dir: b.TempDir(), args: []string{command, "proxy", "--redis",
		"redis://" + servertest.Redis(b), "--upstream", service.URL, "--unscoped",
		"--listen", listen, "--admin", free(b), "--prefix", servertest.Prefix(b), "--config", file}}
	proxy.start()
	b.Cleanup(proxy.kill)
	line, err := proxy.out.ReadString('\n')
	require.NoError(b, err)
	require.Contains(b, line, "clients: http")
	through := "http://" + listen
	fresh := func(round, worker, i int) string { return fmt.Sprintf("%d-%d-%d", round, worker, i) }
	sides := []*side{
		{name: "bare", url: service.URL, path: "/payments", key: fresh},
		{name: "plain", url: through, path: "/plain", key: fresh},
		{name: "new", url: through, path: "/payments", key: fresh},
		{name: "replay", url: through, path: "/payments",
			key: func(_, worker, _ int) string { return fmt.Sprint("same-", worker) }},
	}
	round := 0
	for b.Loop() {
		for range rounds {
			round++
			for i := range sides {
				sides[(i+round)%len(sides)].load(b, round, workers, each)
			}
		}
	}
	for _, s := range sides {
		slices.Sort(s.took)
		b.ReportMetric(ms(s.took[len(s.took)/2]), s.name+"-p50-ms")
		b.ReportMetric(ms(s.took[len(s.took)*99/100]), s.name+"-p99-ms")
		var ratios []float64
		for i, speed := range s.speeds {
			ratios = append(ratios, speed/sides[0].speeds[i])
		}
		slices.Sort(ratios)
		b.ReportMetric(ratios[len(ratios)/2], s.name+"-ratio")
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// load sends from workers at once, each request after the answer of the one before.
func (s *side) load(b *testing.B, round, workers, each int) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers},
		Timeout: patience}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var all sync.WaitGroup
	began := time.Now()
	for w := range workers {
		all.Go(func() {
			for i := range each {
				sent := time.Now()
				status := send(b, client, s.url+s.path, s.key(round, w, i))
				took := time.Since(sent)
				mu.Lock()
				s.took = append(s.took, took)
				mu.Unlock()
				if status != http.StatusCreated {
					b.Errorf("%s: %d", s.name, status)
				}
			}
		})
	}
	all.Wait()
	s.speeds = append(s.speeds, float64(workers*each)/time.Since(began).Seconds())
}

// send sends once; zero says that there was no answer.
func send(b *testing.B, client *http.Client, url, key string) int {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url,
		strings.NewReader(`{"amount":100}`))
	if err != nil {
		return 0
	}
	req.Header.Set("Idempotency-Key", `"`+key+`"`)
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
