package webhooks_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-playground/webhooks/v6/github"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter/webhook"
)

const gitHubSecret = "It's a Secret to Everybody"

// payload is a payload that GitHub has sent.
type payload struct {
	file, event, id string
	signature       string
}

// payloads are the test data of github.com/go-playground/webhooks, read from that module's
// directory: they are not copied.
func payloads(t *testing.T) (list []payload) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/go-playground/webhooks/v6").Output()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata",
		"github", "*.json"))
	require.NoError(t, err, "payloads of GitHub")
	require.GreaterOrEqual(t, len(files), 40, "payloads of GitHub")
	events := map[string]string{"pull_request_issue_comment": "issue_comment",
		"repository_edited": "repository"}
	for _, file := range files {
		name := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".json"), "-", "_")
		event := name
		if e := events[name]; e != "" {
			event = e
		}
		body, err := os.ReadFile(file)
		require.NoError(t, err)
		list = append(list, payload{file: file, event: event, id: "delivery-" + name,
			signature: gitHubSignature(body)})
	}
	return list
}

func gitHubSignature(body []byte) string {
	mac := hmac.New(sha256.New, []byte(gitHubSecret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// curl posts the payload's file as it is, and returns the status.
func (p payload) curl(ctx context.Context, url, id string) (string, error) {
	out, err := exec.CommandContext(ctx, "curl", "--silent", "--show-error", "--noproxy", "*",
		"--output", os.DevNull, "--write-out", "%{http_code}", "--data-binary", "@"+p.file,
		"--header", "Content-Type: application/json", "--header", "User-Agent: GitHub-Hookshot/0",
		"--header", "X-GitHub-Event: "+p.event, "--header", "X-GitHub-Delivery: "+id,
		"--header", "X-Hub-Signature-256: "+p.signature, url+"/hooks").Output()
	return string(out), err
}

// parsed is the effect: another library verifies the delivery once more and makes an event of it.
func parsed(ctx context.Context, d *webhook.Delivery) error {
	hook, err := github.New(github.Options.Secret(gitHubSecret))
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(d.Body))
	if err != nil {
		return err
	}
	r.Header = d.Header
	event, err := hook.Parse(r, github.Event(d.Type))
	if err == nil && event == nil {
		err = errors.New("no event")
	}
	return err
}

// GitHub's payloads come three times each, two of them at once, by curl to a real server over a
// real Redis: each has its effect once, and none is acknowledged before it is done.
func TestPayloadsOfGitHubByCurl(t *testing.T) {
	list, r := payloads(t), realRedis(t)
	s, before := serve(t, r, provider(t, "github", "the old one", gitHubSecret), parsed),
		len(r.keys(t))
	var all sync.WaitGroup
	gate := make(chan struct{}, 4)
	for _, p := range list {
		all.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			p.threeTimes(t, s)
		})
	}
	all.Wait()
	had := s.had()
	for _, p := range list {
		n := had[p.event+" "+p.id]
		assert.Equal(t, 1, n, "%s had %d effects", filepath.Base(p.file), n)
	}
	assert.Len(t, had, len(list), "%d effects of %d payloads", len(had), len(list))
	records := len(r.keys(t)) - before
	t.Logf("%d payloads, %d deliveries, %d effects, %d keys", len(list), 3*len(list),
		s.total(), records)
	assert.Equal(t, len(list), records, "%d payloads have %d keys", len(list), records)

	// And another's signature, by curl too.
	forged := list[0]
	forged.signature = list[1].signature
	status, err := forged.curl(t.Context(), s.URL, "forged")
	assert.NoError(t, err, "forged")
	assert.Equal(t, "401", status, "forged")
	status, err = list[0].curl(t.Context(), s.URL, "captured")
	assert.NoError(t, err, "captured, and sent under another id")
	assert.Equal(t, "422", status, "captured, and sent under another id")
	assert.Equal(t, len(list), s.total(), "effects in the end")
}

// threeTimes delivers two at once, and one when both are answered.
func (p payload) threeTimes(t *testing.T, s *site) {
	var both sync.WaitGroup
	statuses := [2]string{}
	for i := range statuses {
		both.Go(func() {
			var err error
			statuses[i], err = p.curl(t.Context(), s.URL, p.id)
			assert.NoError(t, err, "curl")
		})
	}
	both.Wait()
	done := false
	for _, status := range statuses {
		done = done || status == "200"
		// in flight: sent again
		assert.False(t, status != "200" && status != "409", "%s: %s", filepath.Base(p.file), status)
	}
	assert.True(t, done, "%s: neither of two is acknowledged: %v", filepath.Base(p.file), statuses)
	status, err := p.curl(t.Context(), s.URL, p.id)
	assert.Equal(t, "200", status, "%s, the third time", filepath.Base(p.file))
	assert.NoError(t, err, "%s, the third time", filepath.Base(p.file))
}
