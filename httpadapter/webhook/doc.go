// Package webhook receives webhooks once: it verifies the signature, finds out whether the
// event is done, runs a handler and acknowledges only what is on record.
//
// A [Receiver] is an http.Handler for one endpoint of one [Provider]. Presets are
// [StandardWebhooks], [Stripe], [GitHub], [Shopify], [Slack], [Twilio], [Adyen], [PayPal], [Square]
// and [Mailgun]; [HMAC] describes others, and a Provider of your own needs a Verify. A forged or
// stale delivery costs a digest and makes no key. Where the provider signs the id of an event, that
// is the key; where it signs the body alone (GitHub, Shopify), the key is a digest of type and
// body, and the id must agree with it.
//
// The page docs/reference/http.md of the repository says what is answered when, how long each
// provider sends again, and what is not signed.
package webhook
