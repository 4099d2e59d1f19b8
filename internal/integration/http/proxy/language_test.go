package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
)

// Clients that send one request and print its status, and whether it was replayed. The arguments
// are the URL, the key and the body.
const (
	pythonClient = `
import sys, urllib.request
url, key, body = sys.argv[1:]
request = urllib.request.Request(url, body.encode(), {"Authorization": "Bearer t1",
    "Idempotency-Key": '"%s"' % key, "Content-Type": "application/json"})
with urllib.request.urlopen(request) as answer:
    print(answer.status, answer.headers.get("Idempotent-Replayed", "false"), answer.read().decode())
`
	nodeClient = `
const [url, key, body] = process.argv.slice(2);
fetch(url, {method: "POST", body, headers: {Authorization: "Bearer t1",
  "Idempotency-Key": '"' + key + '"', "Content-Type": "application/json"}}).then(async (answer) =>
  console.log(answer.status, answer.headers.get("Idempotent-Replayed") ?? "false",
    await answer.text()));
`
)

// script is a client of a language, as a function that sends once.
func script(t *testing.T, program, file, text string) func(url, key, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), file)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return func(url, key, body string) string { return output(t, program, path, url, key, body) }
}

func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func said(replayed bool) string { return fmt.Sprintf("201 %t paid", replayed) }

// A key that is sent twice has one effect at the service, from clients of every language.
func TestLanguages(t *testing.T) {
	s := serve(t, strings.NewReplacer())
	curl := servertest.Program(t, "curl")
	const line = `curl -i -H 'Authorization: Bearer t1' -H 'Idempotency-Key: "k1"' ` +
		`-d '{"amount":100}' http://127.0.0.1:8080/payments`
	require.Equal(t, line, block(t, "", 1))
	for name, send := range map[string]func(url, key, body string) string{
		"python": script(t, python(t), "client.py", pythonClient),
		"node":   script(t, servertest.Program(t, "node"), "client.js", nodeClient),
		"go": func(_, key, body string) string {
			status, replayed := s.post(http.DefaultClient, key, body)
			require.Equal(t, 201, status)
			return said(replayed)
		},
		"curl": func(url, key, body string) string { // the guide's
			out := output(t, curl, "-sS", "-i", "-H", "Authorization: Bearer t1", "-H",
				`Idempotency-Key: "`+key+`"`, "-d", body, url)
			assert.Contains(t, out, " 201 Created")
			return said(strings.Contains(out, "Idempotent-Replayed: true"))
		},
	} {
		for i, want := range []string{"201 false paid", "201 true paid", "201 true paid"} {
			got := strings.TrimSpace(send(s.url+"/payments", "k-"+name, `{"from":"`+name+`"}`))
			assert.Equal(t, want, got, "%s, attempt %d\n%s", name, i+1, s.log())
		}
	}
	effects := s.effects()
	assert.Len(t, effects, 4)
	for body, keys := range effects {
		assert.Len(t, keys, 1, body)
	}
}
