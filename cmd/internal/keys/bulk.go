package keys

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/settle"
)

// Bulk is what --json writes of resolve --all.
type Bulk struct {
	List
	// Is is the state of the resolved keys, and Resolved is their number. DryRun reports that no
	// key was changed. Left holds the IDs of the keys that have changed since they were shown.
	Is       string   `json:"is"`
	DryRun   bool     `json:"dry_run"`
	Resolved int      `json:"resolved"`
	Left     []string `json:"left"`
}

// resolveAll resolves the selected uncertain keys. It shows them, asks once for all of them, and
// logs a line for each. It leaves alone a key that has changed since it was shown, and a key that
// became uncertain afterwards.
func (s *store) resolveAll(ctx context.Context, o *Options, std *cli.Streams) error {
	if err := s.completeWindow(o); err != nil {
		return err
	}
	l, err := s.collect(ctx, o, std.Err)
	if err != nil {
		return err
	}
	b := Bulk{List: *l, Is: o.end().String(), DryRun: o.DryRun, Left: []string{}}
	if !o.JSON {
		if err := l.print(std, "uncertain"); err != nil {
			return err
		}
	}
	if !o.DryRun && len(l.Keys) > 0 {
		question := fmt.Sprintf("Have the effects of these %d keys happened?", len(l.Keys))
		if o.Released {
			question = fmt.Sprintf(
				"Have the effects of these %d keys not happened, and may they run again?", len(l.Keys))
		}
		if err := o.confirm(ctx, question, std); err != nil {
			return err
		}
		err = s.resolveEach(ctx, o, &b, std)
	}
	if err != nil && !errors.Is(err, errNo) {
		return err
	}
	var failed error
	switch {
	case o.JSON:
		failed = cli.WriteJSON(std.Out, b)
	case o.DryRun:
		_, failed = fmt.Fprintf(std.Out, "would become %s; nothing is changed\n", b.Is)
	default:
		_, failed = fmt.Fprintf(std.Out, "%d are %s\n", b.Resolved, b.Is)
	}
	return errors.Join(err, failed)
}

func (s *store) resolveEach(ctx context.Context, o *Options, b *Bulk, std *cli.Streams) error {
	for i := range b.Keys {
		v, one := &b.Keys[i], *o
		one.ID = v.id
		is, err := s.change(ctx, &one, v, std)
		switch {
		case errors.Is(err, settle.ErrMoved):
			b.Left = append(b.Left, v.ID)
			fmt.Fprintf(std.Err, "id %s has changed since it was listed: left as it is\n", v.ID)
		case err != nil:
			return err
		default:
			v.State = is
			b.Resolved++
		}
	}
	if len(b.Left) > 0 {
		return fmt.Errorf("%d keys: %w", len(b.Left), errNo)
	}
	return nil
}
