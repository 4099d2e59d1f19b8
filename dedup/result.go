package dedup

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/onceward/onceward/dedup/driver"
)

// merge makes the error of a Do from the error of its handler and the error of its end.
func merge(handler, end error) error {
	switch {
	case handler == nil && errors.Is(end, ErrNoResult):
		return nil // this caller has the value; only a replay will miss it
	case handler == nil:
		return end
	case errors.Is(end, ErrLeaseLost), end != nil && IsPermanent(handler):
		return errors.Join(handler, end) // the failure is not on record, or may not be
	case !IsPermanent(handler) && errors.Is(handler, ErrNoResult):
		return &foreignError{handler} // of a call for another key
	}
	return handler // if a release failed, the claim lapses
}

// storesNothing reports whether a T holds nothing worth storing.
func storesNothing[T any]() bool {
	_, ok := any((*T)(nil)).(*struct{})
	return ok
}

// encode makes the form in which Do stores a value. The form depends on T, as decode needs it, and
// not on what an interface holds. A MarshalJSON that panics costs only the result: the effect has
// happened, and its record matters more.
func encode[T any](value T) (data []byte, err error) {
	switch v := any(&value).(type) {
	case *struct{}:
		return nil, nil
	case *[]byte:
		return *v, nil
	case *string:
		return []byte(*v), nil
	}
	defer func() {
		if p := recover(); p != nil {
			data, err = nil, fmt.Errorf("dedup: encode a %T: panic: %v", value, p)
		}
	}()
	if data, err = json.Marshal(value); err != nil {
		return nil, fmt.Errorf("dedup: encode a %T: %w", value, err)
	}
	return data, nil
}

// decode is the reverse of encode.
func decode[T any](data []byte) (T, error) {
	var value T
	switch p := any(&value).(type) {
	case *struct{}:
		return value, nil
	case *[]byte:
		*p = data
		return value, nil
	case *string:
		*p = string(data)
		return value, nil
	}
	if err := json.Unmarshal(data, &value); err != nil {
		var zero T
		return zero, fmt.Errorf("%w: result is not a %T: %w", driver.ErrUnreadable, value, err)
	}
	return value, nil
}
