package leftout

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// workspace is where go.work is in a checkout; a released module has none.
const workspace = "../../go.work"

// TestSayWhatWasLeftOut prints the notice. It can fail only where it cannot see what is left out.
func TestSayWhatWasLeftOut(t *testing.T) {
	keepOutOfCache(t)
	modules, err := nestedModules(workspace)
	if err != nil {
		t.Skipf("not a checkout: %v", err)
	}
	text := notice(os.Getenv, modules)
	if text == "" {
		return
	}
	if err := tell(text); err != nil {
		t.Log(err)
	}
	t.Log(text) // for go test -v, and for a machine without a terminal
}

// keepOutOfCache touches and then opens a file of ours: the go command does not cache the result of
// a test that read something younger than two seconds. Otherwise the second run would be silent.
func keepOutOfCache(t *testing.T) {
	t.Helper()
	const stamp = ".stamp"
	if err := os.WriteFile(stamp, nil, 0o600); err != nil {
		t.Logf("a cached result may hide the notice: %v", err)
		return
	}
	if _, err := os.ReadFile(stamp); err != nil {
		t.Fatal(err)
	}
}

func TestNotice(t *testing.T) {
	everything := map[string]string{wantServers: "1"}
	for _, s := range servers {
		everything[s.variable] = "somewhere"
	}
	env := func(without ...string) func(string) string {
		return func(name string) string {
			if slices.Contains(without, name) {
				return ""
			}
			return everything[name]
		}
	}
	modules := []string{"bench", "integration"}

	if got := notice(env(), modules); got != "" {
		t.Errorf("with everything there: %q, want silence", got)
	}
	got := notice(env("ONCEWARD_KAFKA"), modules)
	if !strings.Contains(got, "Apache Kafka (one node)\n") || strings.Contains(got, "Redis") {
		t.Errorf("without one Kafka: %q, want that one named and no other", got)
	}
	got = notice(func(string) string { return "" }, modules)
	for _, s := range servers {
		if !strings.Contains(got, s.what) {
			t.Errorf("without anything: %q does not name %s", got, s.what)
		}
	}
	for line := range strings.Lines(got) {
		if !strings.HasPrefix(line, "NOT RUN: ") {
			t.Errorf("%q does not begin with NOT RUN", line)
		}
	}
	if !strings.Contains(got, "bench, integration") || !strings.Contains(got, "make test") {
		t.Errorf("%q does not name the nested modules and the way to run them", got)
	}
}

func TestNestedModules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go.work")
	if err := os.WriteFile(file, []byte("go 1.26\n\nuse (\n\t.\n\t./bench\n\t./cmd\n)\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	got, err := nestedModules(file)
	if err != nil || !slices.Equal(got, []string{"bench", "cmd"}) {
		t.Errorf("%q, %v; want bench and cmd", got, err)
	}
}
