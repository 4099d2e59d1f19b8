// Package docs_test compiles the code that the documentation shows.
package docs_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
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

const root = "../../.."

// packages are those that a page may name without an import of its own.
var packages = func() map[string]string {
	all := map[string]string{
		"redis": "github.com/redis/go-redis/v9", "sarama": "github.com/IBM/sarama",
		"kgo": "github.com/twmb/franz-go/pkg/kgo",
		"pgx": "github.com/jackc/pgx/v5", "pgxpool": "github.com/jackc/pgx/v5/pgxpool",
		"mcp":  "github.com/modelcontextprotocol/go-sdk/mcp",
		"grpc": "google.golang.org/grpc", "message": "github.com/ThreeDotsLabs/watermill/message",
		"sql": "database/sql", "http": "net/http", "slog": "log/slog", "rand": "math/rand/v2",
		"hmac": "crypto/hmac", "sqs": "github.com/aws/aws-sdk-go-v2/service/sqs",
		"jetstream": "github.com/nats-io/nats.go/jetstream", "json": "encoding/json",
		"amqp": "github.com/rabbitmq/amqp091-go", "pubsub": "cloud.google.com/go/pubsub/v2",
		"cmp": "cmp", "synctest": "testing/synctest",
	}
	for name, path := range map[string]string{ // of the recipes for queues
		"asynq": "github.com/hibiken/asynq", "river": "github.com/riverqueue/river",
		"riverpgxv5":   "github.com/riverqueue/river/riverdriver/riverpgxv5",
		"pulsar":       "github.com/apache/pulsar-client-go/pulsar",
		"azservicebus": "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus",
	} {
		all[name] = path
	}
	for name, path := range map[string]string{ // of the page on frameworks
		"chi": "github.com/go-chi/chi/v5", "middleware": "github.com/go-chi/chi/v5/middleware",
		"cors": "github.com/go-chi/cors", "connect": "connectrpc.com/connect",
		"gin": "github.com/gin-gonic/gin", "echo": "github.com/labstack/echo/v4",
		"fiber":    "github.com/gofiber/fiber/v3",
		"adaptor":  "github.com/gofiber/fiber/v3/middleware/adaptor",
		"gzhttp":   "github.com/klauspost/compress/gzhttp",
		"otelhttp": "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp",
	} {
		all[name] = path
	}
	for _, name := range []string{
		"dedup", "dedup/deduptest", "dedup/layered", "dedup/resolver", "redisadapter", "sqladapter",
		"sqladapter/pgxv5", "sqladapter/sqlpreflight", "sqladapter/sqlserver",
		"sqladapter/sqlstore", "outbox",
		"outbox/saramapub", "outbox/franzpub", "outbox/natspub", "outbox/rabbitpub",
		"outbox/webhookpub", "outbox/pgxlisten",
		"kafkaadapter", "kafkaadapter/kafkasarama", "kafkaadapter/kafkafranz",
		"kafkaadapter/kafkaconfluent", "kafkaadapter/kafkasegmentio", "kafkaadapter/txn",
		"httpadapter", "httpadapter/webhook", "contrib/grpcadapter",
		"contrib/mcpadapter", "lease", "bloom", "retry",
		"contrib/owned", "contrib/telemetry", "contrib/watermilladapter", "console",
		"queue", "queue/natsqueue", "queue/pubsubqueue", "queue/rabbitqueue", "queue/redisqueue",
		"queue/sqsqueue",
	} {
		all[name[strings.LastIndexByte(name, '/')+1:]] = "github.com/onceward/onceward/" + name
	}
	for _, name := range []string{"bytes", "context", "errors", "fmt", "io", "log", "os",
		"strings", "testing", "time"} {
		all[name] = name
	}
	return all
}()

// snippet is a block of Go in a page. A comment of HTML right above it, which readers do not see,
// may say what else there is:
//
//	<!-- snippet: type Receipt struct{}
//	in: kafkaadapter.Config
//	returns: (Receipt, error)
//	-->
//
// It has declarations that the block uses; the type of the composite literal whose fields the block
// shows; the results of the function whose statements the block shows, if they are not just an
// error.
type snippet struct {
	page          string
	line          int
	code          string
	more          string
	within, gives string
}

const mark = "<!-- snippet:"

// snippets are the blocks of a page.
func snippets(page, text string) (all []snippet) {
	now := snippet{page: page, gives: "error"}
	comment, code := false, false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case code && trimmed == "```":
			all = append(all, now)
			code, now = false, snippet{page: page, gives: "error"}
		case code:
			now.code += line + "\n"
		case trimmed == "```go":
			code, now.line = true, i+2
		case strings.HasPrefix(trimmed, mark), comment:
			trimmed, comment = strings.CutSuffix(strings.TrimPrefix(trimmed, mark), "-->")
			comment, trimmed = !comment, strings.TrimSpace(trimmed)
			if s, ok := strings.CutPrefix(trimmed, "in:"); ok {
				now.within = s
			} else if s, ok := strings.CutPrefix(trimmed, "returns:"); ok {
				now.gives = s
			} else {
				now.more += trimmed + "\n"
			}
		case trimmed != "":
			now = snippet{page: page, gives: "error"}
		}
	}
	return all
}

// source is a file with the snippet in it. Lines are those of the page.
func (s snippet) source() string {
	at := fmt.Sprintf("//line %s:%d\n", s.page, s.line)
	whole := strings.HasPrefix(s.code, "package ")
	head, tail := "package page\n", ""
	switch {
	case whole:
		head = ""
	case s.within != "":
		head, tail = head+"var _ = "+s.within+"{\n", "}\n"
	case parses(head + s.code):
	default:
		head, tail = head+"func _(ctx context.Context) "+s.gives+" {\n", "panic(0)\n}\n"
	}
	text := head + at + s.code + tail + "//line " + s.page + ":1\n" + s.more
	if whole {
		return text
	}
	f, err := parser.ParseFile(token.NewFileSet(), s.page, text, 0)
	if f == nil || err != nil {
		return text
	}
	wanted := map[string]bool{}
	for _, id := range f.Unresolved {
		if path := packages[id.Name]; path != "" {
			wanted[fmt.Sprintf("import %s %q\n", id.Name, path)] = true
		}
	}
	imports := strings.Join(slices.Sorted(maps.Keys(wanted)), "")
	return strings.Replace(text, "package page\n", "package page\n"+imports, 1)
}

func parses(text string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	return err == nil
}

// checker knows what packages export.
type checker struct {
	fset    *token.FileSet
	exports map[string]string // files
	imports types.Importer
}

// newChecker has all packages compiled that files import.
func newChecker(t *testing.T, files []*ast.File, fset *token.FileSet) *checker {
	t.Helper()
	paths := map[string]bool{}
	for _, f := range files {
		for _, i := range f.Imports {
			paths[strings.Trim(i.Path.Value, `"`)] = true
		}
	}
	args := slices.Concat([]string{"list", "-export", "-deps"}, racebuild.Flags(),
		[]string{"-f", "{{.ImportPath}}\t{{.Export}}"}, slices.Sorted(maps.Keys(paths)))
	list := exec.CommandContext(t.Context(), "go", args...)
	list.Dir = root
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	require.NoError(t, err, "go list: %s", stderr.String())
	c := &checker{fset: fset, exports: map[string]string{}}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		c.exports[path] = file
	}
	c.imports = importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		file := c.exports[path]
		if file == "" {
			return nil, fmt.Errorf("nothing is known of %s", path)
		}
		return os.Open(file)
	})
	return c
}

// check returns the errors of a compiler, except those for unused declarations and imports: a page
// often shows only the beginning of a program.
func (c *checker) check(f *ast.File) error {
	var all []error
	cfg := types.Config{Importer: c.imports, Error: func(err error) {
		var e types.Error
		if !errors.As(err, &e) || !e.Soft {
			all = append(all, err)
		}
	}}
	_, _ = cfg.Check("page", c.fset, []*ast.File{f}, nil)
	return errors.Join(all...)
}

// TestSnippets: every block of Go in README and docs compiles.
func TestSnippets(t *testing.T) {
	pages := []string{filepath.Join(root, "README.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"),
		func(path string, _ os.DirEntry, err error) error {
			if strings.HasSuffix(path, ".md") {
				pages = append(pages, path)
			}
			return err
		})
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		name, _ := filepath.Rel(root, page)
		for _, s := range snippets(name, string(text)) {
			f, err := parser.ParseFile(fset, "page.go", s.source(), 0)
			if !assert.NoError(t, err, "%s:%d is not Go", name, s.line) {
				continue
			}
			files = append(files, f)
			if strings.HasPrefix(s.code, "package ") {
				neat, err := format.Source([]byte(s.code))
				assert.NoError(t, err, "%s:%d", name, s.line)
				assert.Equal(t, string(neat), s.code, "%s:%d is not as gofmt has it", name, s.line)
			}
		}
	}
	require.GreaterOrEqual(t, len(files), 10, "snippets: this test looked in the wrong place")
	c := newChecker(t, files, fset)
	for _, f := range files {
		assert.NoError(t, c.check(f))
	}
	t.Logf("%d snippets of %d pages", len(files), len(pages))
}

// TestSnippetsThatAreWrong: code that does not compile is found, and names that a page leaves
// undeclared are accepted.
func TestSnippetsThatAreWrong(t *testing.T) {
	for name, want := range map[string]struct{ text, problem string }{
		"statements": {"```go\nd, err := dedup.New(nil, dedup.Config{})\n```", ""},
		"a name":     {"```go\nx := charge(ctx)\n```", "page.md:2: undefined: charge"},
		"a hidden name": {
			"<!-- snippet: func charge(context.Context) error -->\n\n```go\nreturn charge(ctx)\n```", ""},
		"a comment of more": {
			"<!-- snippet: type a struct{}\nfunc b() a\nreturns: (a, error)\n-->\n```go\nreturn b(), nil\n```", ""},
		"of another block": {"<!-- snippet: func charge() -->\n\ntext\n\n```go\ncharge()\n```",
			"undefined: charge"},
		"a method": {"\n```go\nfunc f(d *dedup.Deduper) { d.Frobnicate() }\n```",
			"page.md:3: d.Frobnicate undefined"},
		"a field": {
			"<!-- snippet: in: dedup.Config -->\n```go\nWindow: 8,\nWindows: 9,\n```",
			"page.md:4: unknown field Windows"},
		"a file": {
			"```go\npackage main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(1, nope) }\n```",
			"page.md:6: undefined: nope"},
	} {
		t.Run(name, func(t *testing.T) {
			all := snippets("page.md", want.text)
			require.Len(t, all, 1)
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, "page.go", all[0].source(), 0)
			require.NoError(t, err)
			if err = newChecker(t, []*ast.File{f}, fset).check(f); want.problem == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, want.problem)
		})
	}
}
