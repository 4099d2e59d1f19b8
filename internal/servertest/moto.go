package servertest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Moto starts a server for t that answers as Amazon SQS does, on loopback and with its data in
// memory, and returns its URL when it listens. It is stopped when t ends. The test is skipped where
// [Private] would skip it.
func Moto(t testing.TB) string {
	t.Helper()
	Wanted(t, "moto")
	Program(t, "python3")
	servers, err := findScript()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(filepath.Dir(servers), "moto.sh")
	install := exec.CommandContext(t.Context(), script, "install")
	install.Stderr = os.Stderr
	if err := install.Run(); err != nil {
		t.Fatalf("moto.sh install: %v", err)
	}
	port := strconv.Itoa(reservePorts(t, 1))
	address := net.JoinHostPort("127.0.0.1", port)
	// Not ended by the context of t, which ends before Cleanup.
	server := exec.CommandContext(context.WithoutCancel(t.Context()), script, "serve", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	awaitListener(t, address)
	return "http://" + address
}

// awaitListener waits for the server at an address: on a busy machine it takes seconds to start.
func awaitListener(t testing.TB, address string) {
	t.Helper()
	for late := time.Now().Add(time.Minute); time.Now().Before(late); {
		dialer := net.Dialer{Timeout: time.Second}
		if conn, err := dialer.DialContext(t.Context(), "tcp", address); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	t.Fatalf("nothing listens on %s", address)
}
