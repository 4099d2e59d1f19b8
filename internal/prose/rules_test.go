package main

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// buildVale builds vale, if it is not there yet, and returns its path.
var buildVale = sync.OnceValues(func() (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("../../scripts/prose.sh", "-vale")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	_, _ = os.Stderr.Write(stderr.Bytes())
	return strings.TrimSpace(string(out)), err
})

// vale returns the path of vale. The test reads the rules, so that the go command does not keep a
// result when they change.
func vale(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"styles", "vale.ini", "../../scripts/prose.sh"} {
		require.NoError(t, filepath.WalkDir(root,
			func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				_, err = os.ReadFile(path)
				return err
			}))
	}
	path, err := buildVale()
	require.NoError(t, err)
	return path
}

// tree writes files below a temporary directory that has the rules where the repository has them.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, home, "styles"), os.DirFS("styles")))
	config, err := os.ReadFile("vale.ini")
	require.NoError(t, err)
	files[home+"/vale.ini"] = string(config)
	for name, content := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

// checked runs the command over files and returns what it prints.
func checked(t *testing.T, files map[string]string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), append([]string{"-vale", vale(t), "-root", tree(t, files)}, args...),
		&out)
	return out.String(), err
}

// TestSentencesAreRed plants sentences of the project's own past in each place that is checked.
func TestSentencesAreRed(t *testing.T) {
	for _, c := range []struct{ title, sentence, rule string }{
		{"bare who", "Who lands late writes it over", "Subject"},
		{"bare what", "What was forgotten is asked again", "Subject"},
		{"who after a conjunction", "It is shown to nobody, for who asks may not see it",
			"Subject"},
		{"is no", "A pause is no failure", "IsNot"},
		{"tells of", "A counter tells of lost leases", "Words"},
		{"in place of", "The record is read in place of the lease", "Words"},
		{"beside", "A second claim runs beside the first", "Words"},
		{"mend", "A retry mends it", "Words"},
		{"likewise", "The store does likewise", "Words"},
		{"for ever", "The lease lasts for ever", "Words"},
		{"of late", "The server was slow of late", "Words"},
		{"British", "The call was cancelled", "Spelling"},
		{"he", "A late owner loses his lease", "Pronoun"},
		{"long", "The relay " + strings.Repeat("waits and reads and ", 13) + "stops",
			"SentenceLength"},
	} {
		t.Run(c.title, func(t *testing.T) {
			lower := strings.ToLower(c.sentence[:1]) + c.sentence[1:]
			out, err := checked(t, map[string]string{
				"page.md": "# Leases\n\nA plain sentence that\nis in the way. " +
					c.sentence + ".\n",
				"comment.go": "package p\n\nimport \"errors\"\n\n// f returns.\n//\n// It waits. " +
					c.sentence + ".\nfunc f() error {\n" +
					"\treturn errors.New(\"a lease is held\")\n}\n",
				"flags.go": "package p\n\nimport \"flag\"\n\nvar mode = flag.String(\"mode\", \"\", \"the `mode`. " + c.sentence + "\")\n",
				"error.go": "package p\n\nimport \"fmt\"\n\nfunc f(err error) error {\n\treturn fmt.Errorf(\"lease: it failed. " + c.sentence + ": %w\", err)\n}\n",
				"code.go":  "package p\n\n// f has code in its comment, which is not prose:\n//\n//\t" + lower + "\nfunc f() {}\n",
				"name.go":  "package p\n\n// neighbours returns.\nfunc neighbours() {}\n",
				"code.md": "Code is not prose: `" + lower + "`.\n\n```\n" + c.sentence +
					".\n```\n",
			})
			require.ErrorIs(t, err, errUnclean)
			for _, place := range []string{"page.md:", "comment.go:7: ", "flags.go:5: ",
				"error.go:6: "} {
				assert.Regexp(t, "(?m)^"+place+".*"+c.rule+": ", out)
			}
			assert.NotContains(t, out, "code.", "code was read as prose")
			assert.NotContains(t, out, "name.", "a name was read as prose")
		})
	}
}

// TestPlainEnglishIsGreen has words of the rules where they are right.
func TestPlainEnglishIsGreen(t *testing.T) {
	sentences := []string{
		"There is no lease.", "The lease is no longer held.", "Who holds the lease?",
		"What can run twice?",
		"The caller, who has waited, gets an error.", "It returns what the handler returned.",
		"Both are all the same.",
		"He" + "llo is a word.", "It says so instead of waiting.",
		"Recommend a limit, and amend it later.",
		"Errors that come again and again are counted.",
		"The store tells a retry from a new message.", "Whoever reads it sees the record.",
		"[What to do](a.md) is on another page.", "The default answer is no.",
		"It is a table of who may import what.", "It returns what Complete would have returned.",
	}
	var source strings.Builder
	source.WriteString("package p\n\n//go:generate likewise for ever\n\n//nolint:all // beside\n\nconst query = `SELECT 1 FROM t WHERE a IS NOT NULL -- for ever`\n\ntype t struct {\n\tA int `json:\"for ever\"`\n}\n")
	for _, s := range sentences {
		source.WriteString("\n// " + s + "\nvar _ = \"" + s + "\"\n")
	}
	out, err := checked(t, map[string]string{"a.go": source.String(),
		"a.md": "# Plain sentences\n\n" + strings.Join(sentences, "\n\n") + "\n"})
	assert.NoError(t, err, out)
}

// TestHeadings holds headings to what a reader searches for.
func TestHeadings(t *testing.T) {
	for heading, rule := range map[string]string{
		"The front": "HeadingArticle", "What it gives": "HeadingQuestion",
		"Test it": "HeadingPronoun", "Does it work?": "HeadingPunctuation",
		"Some words about the many ways in which retries can fail": "HeadingLength",
	} {
		out, err := checked(t, map[string]string{"a.md": "## " + heading + "\n\nText.\n"})
		require.ErrorIs(t, err, errUnclean, heading)
		assert.Contains(t, out, "a.md:1: "+rule, heading)
	}
	out, err := checked(t, map[string]string{
		"a.md":        "# Transactional outbox\n\n## How it works\n\n## Retries\n\n## When to use a filter\n\n## What to do\n",
		"docs/faq.md": "# FAQ\n\n## What is a lease?\n\nText.\n",
	})
	assert.NoError(t, err, out)
}

// TestPaths runs the whole command, and on one of two files.
func TestPaths(t *testing.T) {
	files := map[string]string{"a.md": "It is kept for ever.\n", "b.md": "It is kept.\n"}
	out, err := checked(t, maps.Clone(files))
	require.ErrorIs(t, err, errUnclean)
	assert.Contains(t, out, "a.md:1: Words: ")

	out, err = checked(t, files, "b.md")
	require.NoError(t, err, out)
	assert.Equal(t, "prose: 1 texts checked\n", out)
}
