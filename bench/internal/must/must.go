// Package must lets the steps of a measurement fail without extra lines. Do and Get panic with the
// error. Catch, in the function where the measurement began, turns the panic into that function's
// error.
package must

import (
	"errors"
	"fmt"
)

// failure is what Do panics with. Nothing else panics with it.
type failure struct{ error }

// Do panics unless err is nil.
func Do(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get returns v, or panics if err is not nil.
func Get[T any](v T, err error) T {
	Do(err)
	return v
}

// True panics with the formatted error unless the condition holds.
func True(holds bool, format string, args ...any) {
	if !holds {
		Do(fmt.Errorf(format, args...))
	}
}

// Catch is for a defer statement: it adds the error of a failed step to err. It lets other panics
// through.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = errors.Join(*err, r.error)
	default:
		panic(r)
	}
}

// Try runs f and returns the error of the step that failed.
func Try(f func()) (err error) {
	defer Catch(&err)
	f()
	return nil
}
