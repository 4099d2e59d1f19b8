package redisadapter

// errWithheld: a caller has got hold of the store that package owned wraps, and would run
// beside an owner that has claimed nothing here.
var errWithheld = input("Options.Owned",
	"is set: the keys are claimed through package owned, and this store is not given to it")

// Own opens a store with Options.Owned for its calls. Package owned calls it with the store
// that it wraps; whoever else does runs effects that an owner of their partition runs, too. A
// store that was opened without Options.Owned is refused with an [*dedup.InputError]: its keys
// are claimed by others. It asks nobody, and may be called again.
func (s *Store) Own() error {
	if !s.opts.Owned {
		return input("Options.Owned",
			"is not set: the keys of the prefix are shared with consumers that know of no owner")
	}
	s.withheld.Store(false)
	return nil
}
