package demo_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDemoInABrowser: console and metrics have the numbers of the table, although the workers that
// counted them were killed. The pages stay until the demo is interrupted.
func TestDemoInABrowser(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	cmd := command(t, plain, dir, "--messages", "150", "--listen", "localhost:0")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := make(chan string)
	var all strings.Builder
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			all.WriteString(scan.Text() + "\n")
			lines <- scan.Text()
		}
	}()
	waitFor(ctx, t, lines, "The console stays at")
	out := all.String()
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(out)

	question := regexp.MustCompile(
		`onceward (inspect pay-\d+ --namespace \S+ --group \S+ --topic \S+ --redis redis://\S+)`).FindStringSubmatch(out)
	require.NotNil(t, question, "nothing to inspect in\n%s", out)
	inspect := command(t, plain, dir)
	inspect.Args = append(inspect.Args[:1], strings.Fields(question[1])...)
	answer, err := inspect.CombinedOutput()
	require.NoError(t, err, question[1])
	assert.Contains(t, string(answer), "succeeded", question[1])
	metrics := get(ctx, t, url+"/metrics", "")
	retries := row(t, out, "  producer retry")
	for i, name := range []string{"atomic", "claimed"} {
		// The last event of a worker that was killed is missing.
		near(t, metrics, 150, `onceward_dedup_ends_total{onceward_name="`+name+
			`",onceward_state="succeeded"}`)
		duplicates := `onceward_dedup_claims_total{onceward_cached="false",onceward_cause="%",onceward_name="` + name + `",onceward_outcome="duplicate"}`
		cached := strings.ReplaceAll(duplicates, `"false"`, `"true"`)
		near(t, metrics, retries[i], strings.ReplaceAll(duplicates, "%", "producer_retry"),
			strings.ReplaceAll(cached, "%", "producer_retry"))
		near(t, metrics, 600, `onceward_dedup_window_seconds{onceward_name="`+name+`"}`)
	}
	page := get(ctx, t, url+"/", "")
	for _, want := range []string{"Onceward: demo", "atomic", "claimed", "producer retry",
		"0 others in flight"} {
		assert.Contains(t, strings.Join(
			strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")), " "), want,
			"the console lacks %q:\n%s", want, page)
	}
	refused := get(ctx, t, url+"/", "demo.example")
	assert.Contains(t, refused, "Use the address that was printed",
		"a page of another site is served: %s", refused)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for range lines { // to the end
	}
	err = cmd.Wait()
	assert.NoError(t, err, "%v, want the exit code of promises that were kept\n%s", err,
		all.String())
	leftBehind(t, dir)
}

// get returns a body. host is the Host of the request, if the URL has another one.
func get(ctx context.Context, t *testing.T, url, host string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	r.Host = host
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(body)
}

// near checks that the sum of all series is want, give or take what four kills may lose.
func near(t *testing.T, metrics string, want int, series ...string) {
	t.Helper()
	const off = 20
	sum := 0.
	for _, s := range series {
		match := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(s) +
			` (\S+)$`).FindStringSubmatch(metrics)
		if match == nil {
			continue // there was no such event
		}
		n, err := strconv.ParseFloat(match[1], 64)
		require.NoError(t, err)
		sum += n
	}
	assert.False(t, sum < max(float64(want)-off, 1), "%s: %v, want about %d in\n%s", series, sum,
		want, metrics)
	assert.False(t, sum > float64(want)+off, "%s: %v, want about %d in\n%s", series, sum, want,
		metrics)
}
