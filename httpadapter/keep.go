package httpadapter

import (
	"net/http"
	"reflect"
)

// KeepIETF keeps every answer except the answers which mean that nothing began, or that the cause
// may pass: 401, 403, 404, 405, 408, 409, 413, 415, 421, 423, 425, 428, 429 and 5xx. A service
// whose 409 is final needs a Keep of its own.
func KeepIETF(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed,
		http.StatusRequestTimeout, http.StatusConflict, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType,
		http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly,
		http.StatusPreconditionRequired, http.StatusTooManyRequests:
		return false
	}
	return status < 500
}

// KeepStripeV1 keeps every answer of a request that has begun, also the 500 of a failure, as
// version 1 of Stripe's interface does. It keeps all but 400, 401, 403, 404, 405, 409 and 429.
func KeepStripeV1(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusConflict, http.StatusTooManyRequests:
		return false
	}
	return true
}

// KeepStripeV2 keeps 2xx and 3xx, as version 2 of Stripe's interface does. A failure is released,
// and its retry is the next attempt, which continues after the steps that are finished
// ([dedup.Step]). [New] refuses KeepStripeV2 over a Runner that undoes those steps. It recognizes
// KeepStripeV2 only if that function itself is Config.Keep, not if Config.Keep calls it.
func KeepStripeV2(status int) bool { return status < 400 }

// goesOn reports whether keep is KeepStripeV2. Other functions that keep no failure do not promise
// that a retry continues after the finished steps.
func goesOn(keep func(int) bool) bool {
	return reflect.ValueOf(keep).Pointer() == reflect.ValueOf(KeepStripeV2).Pointer()
}
