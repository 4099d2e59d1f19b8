package dedup

import (
	"fmt"
	"reflect"
)

// hotLeases is how many leases a hot window has at least. A record may reach the store late by
// a lease, and that must be little compared with the window.
const hotLeases = 10

// completeLayers checks the fields for two stores, and raises the hold to the hot window, so
// that Leases remembers everything that is written to it for that long.
func (c *Config) completeLayers() error {
	bad := func(field, format string, args ...any) error {
		return &InputError{Field: "Config." + field, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case c.Filter != nil && isNil(c.Filter):
		return bad("Filter", "is a nil %T", c.Filter)
	case c.Leases == nil && c.Filter != nil:
		return bad("Filter",
			"is set, and Leases is not: with one store a claim is its own lookup, and there is none to save")
	case c.Leases == nil && c.HotWindow != 0:
		return bad("HotWindow", "is set, and Leases is not")
	case c.Leases == nil:
		return nil
	}
	if err := checkStore("Config.Leases", c.Leases); err != nil {
		return err
	}
	if window := LimitsOf(c.Leases).Window; window != 0 {
		return bad("Leases",
			"has one window for all keys, and HotWindow and Window are two; it needs a layout with a record for each key")
	}
	switch {
	case c.HotWindow <= 0:
		return bad("HotWindow", "is %v; with Leases it must be positive", c.HotWindow)
	case c.HotWindow < hotLeases*c.LeaseTTL:
		return bad("HotWindow", "is %v; at least %d leases (%v) are needed", c.HotWindow,
			hotLeases, hotLeases*c.LeaseTTL)
	case c.HotWindow >= c.Window:
		return bad("HotWindow", "is %v; it must be shorter than Window (%v)", c.HotWindow, c.Window)
	}
	c.Hold = max(c.Hold, c.HotWindow)
	return nil
}

// same reports whether two stores are one.
func same(a, b Store) bool {
	t := reflect.TypeOf(a)
	return t.Kind() == reflect.Pointer && t == reflect.TypeOf(b) && a == b
}
