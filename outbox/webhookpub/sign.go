package webhookpub

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/outbox"
)

const (
	secretPrefix = "whsec_"
	minSecret    = 24 // bytes, of the specification
	maxSecret    = 64
)

func request(ctx context.Context, m *outbox.Message, to *Endpoint, now time.Time) (*http.Request,
	error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(m.Payload))
	if err != nil || req.URL.Host == "" {
		return nil, fmt.Errorf("webhookpub: topic %q has an endpoint whose URL cannot be used",
			m.Topic)
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	signatures, err := sign(m.ID, timestamp, m.Payload, to.Secrets)
	if err != nil {
		return nil, fmt.Errorf("webhookpub: %s: %w", req.URL.Host, err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range m.Headers {
		if strings.EqualFold(h.Key, "Content-Type") {
			req.Header.Set("Content-Type", string(h.Value))
		}
	}
	req.Header.Set("Webhook-Id", m.ID)
	req.Header.Set("Webhook-Timestamp", timestamp)
	req.Header.Set("Webhook-Signature", signatures)
	return req, nil
}

// sign returns a v1 signature of `id.timestamp.body` for each secret. Its errors show no secret.
func sign(id, timestamp string, body []byte, secrets []string) (string, error) {
	if len(secrets) == 0 {
		return "", fmt.Errorf("the endpoint has no secrets")
	}
	list := make([]string, len(secrets))
	for i, secret := range secrets {
		text, isSecret := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.Strict().DecodeString(text)
		if !isSecret || err != nil || len(key) < minSecret || len(key) > maxSecret {
			return "", fmt.Errorf("secret %d is not %s and base64 of %d to %d bytes", i,
				secretPrefix, minSecret, maxSecret)
		}
		mac := hmac.New(sha256.New, key)
		_, _ = fmt.Fprintf(mac, "%s.%s.", id, timestamp)
		_, _ = mac.Write(body)
		list[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(list, " "), nil
}
