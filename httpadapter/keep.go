package httpadapter

import (
	"net/http"
	"reflect"
)

// KeepIETF keeps every answer but those that say that nothing began, or may end: 401, 403,
// 404, 405, 408, 409, 413, 415, 421, 423, 425, 428, 429 and 5xx. A service whose 409 is for
// good has a Keep of its own.
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

// KeepStripeV1 keeps every answer of a request that has begun, the 500 of a failure
// included, as version 1 of Stripe's interface does: all but 400, 401, 403, 404, 405, 409
// and 429.
func KeepStripeV1(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusConflict, http.StatusTooManyRequests:
		return false
	}
	return true
}

// KeepStripeV2 keeps 2xx and 3xx, as version 2 of Stripe's interface does. A failure is
// released, and its retry is the next attempt, which continues after the steps that are
// finished ([dedup.Step]). [New] refuses KeepStripeV2 over a Runner that undoes those steps. It
// sees KeepStripeV2 as Config.Keep itself, and not in a function that calls it.
func KeepStripeV2(status int) bool { return status < 400 }

// goesOn reports whether keep is KeepStripeV2. Another function that keeps no failure does not
// promise that a retry continues after the finished steps.
func goesOn(keep func(int) bool) bool {
	return reflect.ValueOf(keep).Pointer() == reflect.ValueOf(KeepStripeV2).Pointer()
}
