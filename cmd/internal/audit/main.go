package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/progress"
)

func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	o.stdin = s.In
	r, err := audit(ctx, o, s.Err)
	if r == nil {
		return err
	}
	if failed := r.write(o, s); failed != nil {
		return cli.Fail(cli.No, failed)
	}
	switch {
	case ctx.Err() != nil:
		return cli.Fail(cli.Interrupted,
			errors.New("interrupted: this is what was read until then"))
	case err != nil:
		return cli.Fail(cli.No, err)
	case !r.Complete:
		return cli.Fail(cli.No, fmt.Errorf("this is not all of the %s; see --max", o.source()))
	}
	return nil
}

// audit reads and reports. After an error, it reports what it has read until then, or nil if it has
// read nothing.
func audit(ctx context.Context, o *Options, errOut io.Writer) (r *Report, err error) {
	s, err := o.load()
	if err != nil {
		return nil, err
	}
	before := s.Tally.Messages
	complete, err := o.read(ctx, s, errOut)
	if err != nil && s.Tally.Messages == before {
		return nil, err
	}
	return s.Tally.report(o, complete && err == nil), errors.Join(err, o.save(s))
}

// read reads the source, with a progress bar on a terminal.
func (o *Options) read(ctx context.Context, s *state, errOut io.Writer) (complete bool, err error) {
	left, read := int64(0), func(yield func(*message) bool) (bool, error) {
		if o.Table != "" {
			return o.readTable(ctx, yield)
		}
		return o.readFile(ctx, s.Next, yield)
	}
	if o.Topic != "" {
		t, err := openTopic(ctx, o, s.Next)
		if err != nil {
			return false, err
		}
		defer t.client.Close()
		left = min(t.left, int64(o.Max))
		read = func(yield func(*message) bool) (bool, error) { return t.read(ctx, s.Next, yield) }
	}
	meter := progress.Start(errOut, "reading", left)
	defer meter.Stop()
	n := 0
	return read(func(m *message) bool {
		if n == o.Max {
			return false
		}
		n++
		meter.Add(1)
		s.Tally.add(m)
		return true
	})
}

// write writes the report, and the HTML page if one is wanted.
func (r *Report) write(o *Options, s *cli.Streams) error {
	if o.HTML != "" {
		page, err := r.page()
		if err == nil {
			err = os.WriteFile(o.HTML, page, 0o644)
		}
		if err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	return s.Report(r, o.JSON, r.print)
}
