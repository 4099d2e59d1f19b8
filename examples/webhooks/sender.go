package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/onceward/onceward/httpadapter/webhook"
)

// deliverAll acts as two senders, which deliver each event until they get a 2xx, and sometimes once
// more.
func deliverAll(ctx context.Context, base string, s secrets) error {
	for _, event := range []struct {
		what, path, id, body, secret string
		times                        int
	}{
		{"an invoice, three times", "/hooks/billing",
			"msg_1", `{"type":"invoice.paid","amount":100}`, s.billing, 3},
		{"forged", "/hooks/billing", "msg_2", `{"type":"invoice.paid","amount":999}`,
			"whsec_" + strings.Repeat("A", 32), 1},
		{"nobody wants it", "/hooks/billing", "msg_3", `{"type":"customer.seen"}`, s.billing, 1},
		{"a push, three times", "/hooks/github", "72d3162e-cc78-11e3-81ab-4c9367dc0958",
			`{"ref":"refs/heads/main"}`, s.github, 3},
		{"it captured that push", "/hooks/github", "00000000-cc78-11e3-81ab-4c9367dc0958",
			`{"ref":"refs/heads/main"}`, s.github, 1},
	} {
		fmt.Println(event.what)
		for range event.times {
			status, err := deliver(ctx, base+event.path, event.id, event.body, event.secret)
			if err != nil {
				return err
			}
			fmt.Printf("  %d %s\n", status, http.StatusText(status))
		}
	}
	return nil
}

// deliver sends an event once. Each of the two senders signs in its own way: GitHub's signature
// does not cover the id.
func deliver(ctx context.Context, url, id, body, secret string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	if strings.HasSuffix(url, "/github") {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		r.Header.Set("X-GitHub-Delivery", id)
		r.Header.Set("X-GitHub-Event", "push")
	} else if r.Header, err = webhook.Sign(id, time.Now(), []byte(body), secret); err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
