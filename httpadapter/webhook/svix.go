package webhook

import "net/http"

// standardNames are the names of the headers of Standard Webhooks.
type standardNames struct{ id, timestamp, signature string }

var (
	standardOwn  = standardNames{idHeader, timestampHeader, signatureHeader}
	standardSvix = standardNames{"Svix-Id", "Svix-Timestamp", "Svix-Signature"}
)

// headerNames returns which of the two sets of names a message uses. A message with headers of both
// sets is refused: two receivers that read different sets would see two messages.
func headerNames(h http.Header) (standardNames, error) {
	own, svix := standardOwn.anyIn(h), standardSvix.anyIn(h)
	switch {
	case own && svix:
		return standardNames{}, bad(idHeader,
			"is there under its Svix name, too, or another header of the message is: send one set")
	case svix:
		return standardSvix, nil
	}
	return standardOwn, nil
}

func (n standardNames) anyIn(h http.Header) bool {
	for name := range h { // of any case, as in line
		switch http.CanonicalHeaderKey(name) {
		case n.id, n.timestamp, n.signature:
			return true
		}
	}
	return false
}
