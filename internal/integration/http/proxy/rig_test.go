package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
)

// patience bounds what a test waits for.
const patience = time.Minute

// page is the guide.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/guides/proxy.md"))
	require.NoError(t, err)
	return string(text)
}

// block is the n-th block of the guide in a language.
func block(t *testing.T, language string, n int) string {
	t.Helper()
	form := regexp.MustCompile("(?s)\n\n```" + language + "\n(.*?)\n```\n")
	all := form.FindAllStringSubmatch(page(t), -1)
	require.Greater(t, len(all), n, "blocks of %q", language)
	return all[n][1]
}

// free is a port that nobody listens on now.
func free(t testing.TB) string {
	t.Helper()
	var listening net.ListenConfig
	l, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// process is a program that is started, killed and started again.
type process struct {
	testing.TB
	dir  string
	args []string
	env  []string

	cmd *exec.Cmd
	out *bufio.Reader
}

func (p *process) start() {
	p.Helper()
	p.cmd = exec.CommandContext(context.WithoutCancel(p.Context()), p.args[0], p.args[1:]...)
	p.cmd.Dir, p.cmd.Env = p.dir, append(os.Environ(), p.env...)
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(p, err)
	defer func() { _ = log.Close() }()
	p.cmd.Stderr = log
	out, err := p.cmd.StdoutPipe()
	require.NoError(p, err)
	p.out = bufio.NewReader(out)
	require.NoError(p, p.cmd.Start())
}

// kill ends it with SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// site is the service of the guide, and the proxy in front of it.
type site struct {
	*testing.T
	service, proxy *process
	redis, prefix  string
	url, address   string // of the proxy, and of the service
}

// python is the interpreter itself: a wrapper of it would leave it behind when it is killed.
func python(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), servertest.Program(t, "python3"), "-c",
		"import sys; print(sys.executable)").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// serve starts both, with the addresses of the guide replaced by those of this test.
func serve(t *testing.T, change *strings.Replacer, args ...string) *site {
	t.Helper()
	s := &site{T: t, redis: servertest.Redis(t), prefix: servertest.Prefix(t), address: free(t)}
	listen, admin := free(t), free(t)
	s.url = "http://" + listen
	dir := t.TempDir()
	program := strings.Replace(block(t, "python", 0), "8000", s.address[len("127.0.0.1:"):], 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "service.py"),
		[]byte(change.Replace(program)), 0o600))
	lines := strings.Split(block(t, "", 0), "\n")
	require.Equal(t, "python3 service.py", lines[0])
	s.service = &process{TB: t, dir: dir, args: []string{python(t), "service.py"}}
	line := strings.NewReplacer("127.0.0.1:6379", s.redis, "127.0.0.1:8000", s.address).
		Replace(lines[1])
	fields := strings.Fields(line)
	require.Equal(t, []string{"onceward", "proxy"}, fields[:2])
	args = append([]string{"--listen", listen, "--admin", admin, "--prefix", s.prefix},
		args...)
	s.proxy = &process{TB: t, dir: t.TempDir(),
		args: append(append([]string{command}, fields[1:]...), args...)}
	t.Cleanup(func() { s.service.kill(); s.proxy.kill() })
	s.startService()
	s.startProxy()
	return s
}

// startService waits until it can be connected to.
func (s *site) startService() {
	s.Helper()
	s.service.start()
	require.Eventually(s, func() bool {
		c, err := (&net.Dialer{}).DialContext(s.Context(), "tcp", s.address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, patience, 10*time.Millisecond)
}

// startProxy waits until it says where it listens.
func (s *site) startProxy() {
	s.Helper()
	s.proxy.start()
	line, err := s.proxy.out.ReadString('\n')
	require.NoError(s, err, "%s", s.log())
	require.Contains(s, line, "clients: http")
}

func (s *site) log() string {
	text, _ := os.ReadFile(filepath.Join(s.proxy.dir, "log"))
	return string(text)
}

// effects are the lines of the service's file: its key, and the body.
func (s *site) effects() map[string][]string {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.service.dir, "payments.log"))
	if !os.IsNotExist(err) {
		require.NoError(s, err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		key, body, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[body] = append(all[body], key)
	}
	return all
}

// post sends one attempt; status 0 says that there was no answer.
func (s *site) post(client *http.Client, key, body string) (status int, replayed bool) {
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+"/payments",
		strings.NewReader(body))
	require.NoError(s, err)
	req.Header.Set("Authorization", "Bearer t1")
	req.Header.Set("Idempotency-Key", `"`+key+`"`)
	resp, err := client.Do(req)
	if err != nil {
		return 0, false
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, false
	}
	return resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true"
}
