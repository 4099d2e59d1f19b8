package redisadapter

import "fmt"

// withheldError is the answer to every call before OpenFor. A caller that reaches this store
// past its wrapper would run the effects of keys that the wrapper has given out.
func (s *Store) withheldError() error {
	return input("Options.WrappedBy", fmt.Sprintf(
		"is %q: the keys are claimed through that store, which has not opened this one",
		s.opts.WrappedBy))
}

// OpenFor opens a store with Options.WrappedBy for its calls. The wrapper calls it with its own
// name, when it has agreed with the other processes that it may claim the keys. Any other caller
// runs effects that the wrapper's users run, too. A name other than that of Options.WrappedBy,
// and a store that has no wrapper, are an [*dedup.InputError]. OpenFor sends nothing, and may be
// called again.
func (s *Store) OpenFor(wrapper string) error {
	switch {
	case s.opts.WrappedBy == "":
		return input("Options.WrappedBy", fmt.Sprintf(
			"is not set: the keys of the prefix are shared with consumers that do not know of %q",
			wrapper))
	case s.opts.WrappedBy != wrapper:
		return input("Options.WrappedBy", fmt.Sprintf("is %q, and the wrapper is %q",
			s.opts.WrappedBy, wrapper))
	}
	s.withheld.Store(false)
	return nil
}
