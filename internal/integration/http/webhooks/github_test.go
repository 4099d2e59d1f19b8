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

	"github.com/onceward/onceward/httpadapter/webhook"
)

const gitHubSecret = "It's a Secret to Everybody"

// payload is one that GitHub has sent.
type payload struct {
	file, event, id string
	signature       string
}

// payloads are those that github.com/go-playground/webhooks ships as test data, where the module
// lies: they are not copied.
func payloads(t *testing.T) (list []payload) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/go-playground/webhooks/v6").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata",
		"github", "*.json"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d payloads of GitHub: %v", len(files), err)
	}
	events := map[string]string{"pull_request_issue_comment": "issue_comment",
		"repository_edited": "repository"}
	for _, file := range files {
		name := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".json"), "-", "_")
		event := name
		if e := events[name]; e != "" {
			event = e
		}
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
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

// curl posts the payload as it lies there, and returns the status.
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
		if n := had[p.event+" "+p.id]; n != 1 {
			t.Errorf("%s had %d effects", filepath.Base(p.file), n)
		}
	}
	if len(had) != len(list) {
		t.Errorf("%d effects of %d payloads: %v", len(had), len(list), had)
	}
	records := len(r.keys(t)) - before
	t.Logf("%d payloads, %d deliveries, %d effects, %d keys", len(list), 3*len(list),
		s.total(), records)
	if records != len(list) {
		t.Errorf("%d payloads have %d keys", len(list), records)
	}

	// And another's signature, by curl too.
	forged := list[0]
	forged.signature = list[1].signature
	if status, err := forged.curl(t.Context(), s.URL, "forged"); err != nil || status != "401" {
		t.Errorf("forged: %s, %v", status, err)
	}
	if status, err := list[0].curl(t.Context(), s.URL, "captured"); err != nil || status != "422" {
		t.Errorf("captured, and sent under another id: %s, %v", status, err)
	}
	if n := s.total(); n != len(list) {
		t.Errorf("%d effects in the end", n)
	}
}

// threeTimes delivers two at once, and one when both are answered.
func (p payload) threeTimes(t *testing.T, s *site) {
	var both sync.WaitGroup
	statuses := [2]string{}
	for i := range statuses {
		both.Go(func() {
			var err error
			if statuses[i], err = p.curl(t.Context(), s.URL, p.id); err != nil {
				t.Errorf("curl: %v", err)
			}
		})
	}
	both.Wait()
	done := false
	for _, status := range statuses {
		done = done || status == "200"
		if status != "200" && status != "409" { // in flight: sent again
			t.Errorf("%s: %s", filepath.Base(p.file), status)
		}
	}
	if !done {
		t.Errorf("%s: neither of two is acknowledged: %v", filepath.Base(p.file), statuses)
	}
	if status, err := p.curl(t.Context(), s.URL, p.id); status != "200" || err != nil {
		t.Errorf("%s, the third time: %s, %v", filepath.Base(p.file), status, err)
	}
}
