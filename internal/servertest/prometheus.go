package servertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Prometheus starts a Prometheus for t, on loopback and with its data in a directory of its own,
// and returns its URL; it may not answer yet. files has the files that it reads, by name:
// prometheus.yml, and those that it names, such as rules. It is stopped when t ends, and when t has
// failed its log is printed.
func Prometheus(t testing.TB, files map[string]string) string {
	t.Helper()
	program, dir := Program(t, "prometheus"), t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listen, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listen.Addr().String()
	if err := listen.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	// Not ended by the context of t, which ends before Cleanup: that stops the program.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program,
		"--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("Prometheus said\n%s", text)
		}
	})
	return "http://" + address
}

// AskPrometheus asks the API of the Prometheus at a URL for a path, such as /api/v1/query, and
// decodes the answer into into. An answer other than 200 is an error with its text. It asks only
// once: a Prometheus that has just been started may not answer yet.
func AskPrometheus(ctx context.Context, server, path string, query url.Values, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return json.Unmarshal(text, into)
}
