package server

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/onceward/onceward/bench/internal/resp"
)

func TestDelay(t *testing.T) {
	const oneWay = 15 * time.Millisecond
	proxy, err := NewDelay(t.Context(), miniredis.RunT(t).Addr(), oneWay)
	if err != nil {
		t.Fatal(err)
	}
	c, err := resp.Dial(t.Context(), proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	keys := strings.Fields("a b c d e")
	began := time.Now()
	if err := c.ClaimNew(t.Context(), keys, strings.Repeat("x", 100_000), time.Minute); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*oneWay {
		t.Errorf("a round trip took %v, want at least %v", took, 2*oneWay)
	}
	if err := c.MGet(t.Context(), keys); err != nil { // 500 kB back, in order
		t.Fatal(err)
	}
	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.MGet(t.Context(), keys); err == nil {
		t.Error("a closed proxy passes commands on")
	}
}

func TestPrivate(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("ONCEWARD_REQUIRE_SERVERS") != "" {
			t.Fatal("no redis-server, and nothing may be left out: ", err)
		}
		t.Skip("NOT RUN: no redis-server: ", err) // go test alone needs no server
	}
	s, err := Open(t.Context(), Private, 0)
	if err != nil {
		t.Fatal(err)
	}
	version, err := s.Version(t.Context())
	if err != nil || version == "" {
		t.Errorf("version %q, %v", version, err)
	}
	if cpu, err := s.CPU()(t.Context()); err != nil || cpu <= 0 {
		t.Errorf("CPU %v, %v", cpu, err)
	}
	if n, err := s.Memory(t.Context()); err != nil || n <= 0 {
		t.Errorf("memory %v, %v", n, err)
	}
	if err := s.Empty(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(t.Context(), s.Addr, 0); err == nil {
		t.Error("it still runs")
	}
}

func TestOthersServerIsNotEmptied(t *testing.T) {
	mini := miniredis.RunT(t)
	s, err := Open(t.Context(), mini.Addr(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := mini.Set("theirs", "1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Empty(t.Context()); err == nil || !mini.Exists("theirs") {
		t.Errorf("error %v, key there: %v", err, mini.Exists("theirs"))
	}
}

func TestParseInfo(t *testing.T) {
	got := parseInfo("# Memory\r\nused_memory:12\r\nused_memory_human:1:2\r\n\r\n")
	if len(got) != 2 || got["used_memory"] != "12" || got["used_memory_human"] != "1:2" {
		t.Errorf("%q", got)
	}
}

// A core is busy until stop is called, and no longer.
func TestBusy(t *testing.T) {
	stop, err := Busy()
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
