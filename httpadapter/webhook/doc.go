// Package webhook handles each webhook event once: it verifies the signature, finds out whether the
// event is done, runs a handler, and acknowledges only what is on record.
//
//	run, err := httpadapter.Claimed(d)
//	...
//	provider, err := webhook.Stripe(os.Getenv("STRIPE_SECRET"))
//	...
//	hook, err := webhook.New(run, provider, handle, webhook.Config{Endpoint: "billing"})
//	...
//	mux.Handle("POST /hooks/billing", hook)
//
// A [Receiver] is an http.Handler for one endpoint of one [Provider]. Presets are
// [StandardWebhooks], [Stripe], [GitHub], [Shopify], [Slack], [Twilio], [Adyen], [PayPal], [Square]
// and [Mailgun]; [HMAC] describes others, and a Provider of your own needs a Verify. A forged or
// stale delivery costs a digest and makes no key. If the provider signs the id of an event, the id
// is the key. If it signs only the body (GitHub, Shopify), the key is a digest of type and body,
// and each later delivery of that body must have the same id.
//
// The page docs/reference/http.md of the repository says what is answered when, for how long each
// provider resends, and what is not signed.
package webhook
