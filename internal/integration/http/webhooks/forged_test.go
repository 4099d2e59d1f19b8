package webhooks_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func hmacOf(secret, text string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// forgeries sign a delivery of each provider. With another secret than the receiver's it is forged.
var forgeries = map[string]func(t testing.TB, secret, id string) (http.Header, []byte){
	"standard-webhooks": func(t testing.TB, secret, id string) (http.Header, []byte) {
		body := []byte(`{"type":"invoice.paid"}`)
		return signedByThem(t, id, time.Now(), body, secret), body
	},
	"stripe": func(_ testing.TB, secret, id string) (http.Header, []byte) {
		body, now := `{"id":"`+id+`","type":"charge.succeeded"}`,
			strconv.FormatInt(time.Now().Unix(), 10)
		return header("Stripe-Signature",
			"t="+now+",v1="+hex.EncodeToString(hmacOf(secret, now+"."+body))), []byte(body)
	},
	"github": func(_ testing.TB, secret, id string) (http.Header, []byte) {
		body := `{"delivery":"` + id + `"}`
		return header("X-Hub-Signature-256", "sha256="+hex.EncodeToString(hmacOf(secret, body)),
			"X-GitHub-Delivery", id, "X-GitHub-Event", "push"), []byte(body)
	},
	"shopify": func(_ testing.TB, secret, id string) (http.Header, []byte) {
		body := `{"order":"` + id + `"}`
		return header("X-Shopify-Hmac-Sha256",
			base64.StdEncoding.EncodeToString(hmacOf(secret, body)),
			"X-Shopify-Event-Id", id, "X-Shopify-Topic", "orders/create"), []byte(body)
	},
	"slack": func(_ testing.TB, secret, id string) (http.Header, []byte) {
		body, now := `{"event_id":"`+id+`","event":{"type":"message"}}`,
			strconv.FormatInt(time.Now().Unix(), 10)
		return header("X-Slack-Request-Timestamp", now,
				"X-Slack-Signature", "v0="+hex.EncodeToString(hmacOf(secret, "v0:"+now+":"+body))),
			[]byte(body)
	},
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

const (
	honestSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	guess        = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYY"
)

// Ten thousand forged deliveries, two thousand for each provider, each with an id of its own,
// leave a real Redis as it was. So nobody fills the store without a secret, and nobody takes the
// key of an event that is still to come. Honest deliveries with the same ids are received
// afterwards.
func TestForgedDeliveriesMakeNoKeys(t *testing.T) {
	const each, workers = 2000, senders
	r := realRedis(t)
	sites := map[string]*site{}
	for name := range forgeries {
		sites[name] = serve(t, r, provider(t, name, honestSecret), nil)
	}
	before := len(r.keys(t))
	var all sync.WaitGroup
	refused := make([]int, workers)
	for worker := range workers {
		all.Go(func() {
			for name, forge := range forgeries {
				for n := worker; n < each; n += workers {
					h, body := forge(t, guess, "evt_"+strconv.Itoa(n))
					if !assert.Equal(t, http.StatusUnauthorized, sites[name].post(t, h, body),
						"%s: forged, answered", name) {
						return
					}
					refused[worker]++
				}
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range refused {
		sum += n
	}
	after := r.keys(t)
	t.Logf("%d forged deliveries refused; keys under the prefix: %d before, %d after", sum,
		before, len(after))
	assert.Equal(t, each*len(forgeries), sum, "refused; keys before, %s",
		strings.Join(after[:min(5, len(after))], " "))
	assert.Len(t, after, before, "refused; keys before, %s",
		strings.Join(after[:min(5, len(after))], " "))
	// Deliveries with the same ids, honestly signed, are received: nobody has taken their keys.
	for name, sign := range forgeries {
		for n := range 10 {
			h, body := sign(t, honestSecret, "evt_"+strconv.Itoa(n))
			assert.Equal(t, http.StatusOK, sites[name].post(t, h, body), "%s: honest, answered",
				name)
		}
		n := sites[name].total()
		assert.Equal(t, 10, n, "%s: %d effects of 10 events: %s", name, n,
			fmt.Sprint(sites[name].had()))
	}
	n := len(r.keys(t)) - before
	assert.Equal(t, 10*len(forgeries), n, "50 honest deliveries made %d keys: nothing is counted",
		n)
}
