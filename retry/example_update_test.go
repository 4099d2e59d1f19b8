package retry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onceward/onceward/retry"
)

var errChanged = errors.New("somebody else has changed it")

// update reads a document, changes it and writes it back, if nobody has written it since (RFC 9110,
// 13.1.1). After a 412 it reads again, a few times. PUT is idempotent, so the transport may repeat
// it. If the first send succeeded, the repeat finds a new ETag and also gets a 412. So change must
// recognize what it has already done.
func update(ctx context.Context, client *http.Client, url string,
	change func(string) string) error {
	policy := retry.Policy{
		Attempts: 5,
		Backoff:  retry.Backoff{Base: 10 * time.Millisecond, Cap: time.Second},
		// the transport retries everything else
		Retryable: func(err error) bool { return errors.Is(err, errChanged) },
	}
	_, err := retry.Do(ctx, policy, func(context.Context, int) (struct{}, error) {
		// This is the context of Do. That of the attempt would forbid the transport to repeat.
		old, etag, err := read(ctx, client, url)
		if err != nil {
			return struct{}{}, err
		}
		next := change(old)
		if next == old {
			return struct{}{}, nil // done, perhaps by a write whose answer was lost
		}
		return struct{}{}, write(ctx, client, url, etag, next)
	})
	return err
}

func read(ctx context.Context, client *http.Client, url string) (text, etag string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New("GET: " + resp.Status)
	}
	return string(body), resp.Header.Get("ETag"), err
}

func write(ctx context.Context, client *http.Client, url, etag, text string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader([]byte(text)))
	if err != nil {
		return err
	}
	req.Header.Set("If-Match", etag) // a strong ETag: a weak one never matches
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		return nil
	case http.StatusPreconditionFailed:
		return errChanged
	}
	return errors.New("PUT: " + resp.Status)
}

// A conditional update: read, change, write with If-Match, and read again after 412.
func Example_conditionalUpdate() {
	doc := &document{text: "a"}
	doc.meanwhile = func() { doc.set("a b") } // somebody else, between our read and our write
	server := httptest.NewServer(doc)
	defer server.Close()

	transport, err := retry.NewTransport(nil, retry.TransportConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = update(context.Background(), &http.Client{Transport: transport}, server.URL,
		func(old string) string {
			if strings.HasSuffix(old, " c") {
				return old
			}
			return old + " c"
		})
	fmt.Println(doc.text, err)
	// Output: a b c <nil>
}

// document is a text with a version.
type document struct {
	mu        sync.Mutex
	text      string
	version   int
	meanwhile func() // after the next read
}

func (d *document) set(text string) { d.text, d.version = text, d.version+1 }

func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	etag := strconv.Quote(strconv.Itoa(d.version))
	switch {
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", etag)
		fmt.Fprint(w, d.text)
		if d.meanwhile != nil {
			d.meanwhile()
			d.meanwhile = nil
		}
	case r.Header.Get("If-Match") != etag:
		w.WriteHeader(http.StatusPreconditionFailed)
	default:
		body, _ := io.ReadAll(r.Body)
		d.set(string(body))
		w.WriteHeader(http.StatusNoContent)
	}
}
