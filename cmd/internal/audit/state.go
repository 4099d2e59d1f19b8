package audit

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// state is what a run keeps, so that the next run can continue.
type state struct {
	Source, ID, Payload string
	Next                map[int32]int64 // offset of each partition; of a file, the byte, under 0
	Tally               *tally
}

// load reads the state of an earlier run, if there is one.
func (o *Options) load() (*state, error) {
	s := &state{Source: o.source(), ID: o.ID, Payload: o.Payload, Next: map[int32]int64{},
		Tally: newTally(o.IDs)}
	if o.State == "" {
		return s, nil
	}
	f, err := os.Open(o.State)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was read
	before := &state{Next: map[int32]int64{}, Tally: newTally(o.IDs)}
	if err := gob.NewDecoder(f).Decode(before); err != nil {
		return nil, fmt.Errorf("--state %s is not that of an audit: %w", o.State, err)
	}
	if before.Source != s.Source || before.ID != s.ID || before.Payload != s.Payload {
		return nil, fmt.Errorf("--state %s is of %s with --id %q and --payload %q: name another file",
			o.State, before.Source, before.ID, before.Payload)
	}
	before.Tally.Limit = o.IDs
	return before, nil
}

// save writes the whole state or nothing.
func (o *Options) save(s *state) (err error) {
	if o.State == "" {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("--state: %w", err)
		}
	}()
	f, err := os.CreateTemp(filepath.Dir(o.State), filepath.Base(o.State)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has its name by then
	if err := errors.Join(gob.NewEncoder(f).Encode(s), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), o.State)
}
