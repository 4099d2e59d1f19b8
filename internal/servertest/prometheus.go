package servertest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Prometheus starts one for t, on loopback and with its data in a directory of its own, and returns its
// URL; it may not answer yet. Files are what it reads, by their names: prometheus.yml, and what that one
// names, such as rules. It is stopped when t ends, and when t has failed its log is printed.
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
	// Not ended by the context of t, which ends before Cleanup: it is asked to stop there.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
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
