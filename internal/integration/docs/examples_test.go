package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/racebuild"
)

// TestPackageExamples runs the Examples of packages that may not import what they need to run, such
// as a driver. Their own modules only compile them: their output is under "It prints:" instead of
// "Output:". Here drivers and brokers exist, and the Examples run in a copy that says Output.
func TestPackageExamples(t *testing.T) {
	const sqlite = "import _ \"modernc.org/sqlite\"\n"
	const pgx = "import _ \"github.com/jackc/pgx/v5/stdlib\"\n"
	for dir, row := range map[string]struct {
		examples int
		drivers  string
	}{
		"sqladapter": {4, sqlite}, "outbox": {1, sqlite}, "sqladapter/pgxv5": {1, ""},
		"sqladapter/sqlstore": {1, sqlite}, "sqladapter/sqlpreflight": {1, sqlite},
		"kafkaadapter/kafkaconfluent": {1, ""}, "kafkaadapter/kafkafranz": {1, ""},
		"kafkaadapter/kafkasegmentio": {1, ""}, "outbox/franzpub": {1, ""},
		"outbox/saramapub": {1, ""}, "outbox/pgxlisten": {1, pgx},
	} {
		t.Run(dir, func(t *testing.T) {
			examples := row.examples
			text := read(t, dir+"/example_test.go")
			text = strings.NewReplacer("// It prints:\n", "// Output:\n",
				"// It prints, in any order:\n", "// Unordered output:\n").Replace(text)
			require.Equal(t, examples, strings.Count(strings.ToLower(text), "output:\n"))
			code, err := exampleIn(t, dir, text, row.drivers)
			require.NoError(t, err, code)
			assert.Equal(t, examples, strings.Count(code, "--- PASS: Example"), code)
		})
	}
	t.Run("one that prints something else", func(t *testing.T) {
		text := strings.Replace(read(t, "sqladapter/example_test.go"), "// It prints:\n",
			"// Output:\n// nothing of the kind\n", 1)
		code, err := exampleIn(t, "sqladapter", text, sqlite)
		require.Error(t, err, code)
	})
}

// exampleIn runs the examples of a package with this text instead of its file, each in an empty
// directory.
func exampleIn(t *testing.T, dir, text, drivers string) (string, error) {
	t.Helper()
	clone, err := filepath.Abs(root)
	require.NoError(t, err)
	name, _, _ := strings.Cut(strings.TrimPrefix(text, "package "), "\n")
	tmp := t.TempDir()
	overlay := map[string]map[string]string{"Replace": {}}
	for file, content := range map[string]string{
		"example_test.go": text,
		"drivers_test.go": "package " + name + "\n" + drivers +
			"import (\"os\"; \"testing\")\nfunc TestMain(m *testing.M) { if err := os.Chdir(os.TempDir()); err != nil { panic(err) }; m.Run() }\n",
	} {
		path := filepath.Join(tmp, file)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		overlay["Replace"][filepath.Join(clone, dir, file)] = path
	}
	list, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(tmp, "overlay.json"), list, 0o600))
	dsn, _ := database(t)
	brokers, produce := kafka(t, "orders", "bookings")
	produce("orders", "order-1", "order-1", "order-2", "order-2")
	args := slices.Concat([]string{"test"}, racebuild.Flags(), []string{"-overlay",
		filepath.Join(tmp, "overlay.json"), "-vet=off", "-ldflags=-s", "-count=1", "-v", "-run",
		"^Example", "."})
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join(clone, dir)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "DATABASE_URL="+dsn, "KAFKA_BROKERS="+brokers)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
