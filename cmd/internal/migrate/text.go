package migrate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// took formats how long the step has taken.
func (s Step) took() time.Duration {
	return time.Duration(s.Milliseconds * float64(time.Millisecond)).Round(time.Microsecond)
}

// text describes a step.
func (s Step) text() string { return fmt.Sprintf("version %d to %d (%s)", s.From, s.To, s.Name) }

// print writes the state for people; last adds the closing line.
func (s *State) print(std *cli.Streams, last bool) error {
	err := std.Fields(s.fields()...)
	if last {
		err = errors.Join(err, std.Lines(0, s.summary()))
	}
	return err
}

func (s *State) fields() [][2]string {
	all := [][2]string{{s.Kind, s.name() + ", in " + s.Dialect},
		{"version", fmt.Sprintf("%d; this program knows %d", s.Version, s.Newest)}}
	line := func(what, value string) { all = append(all, [2]string{what, value}) }
	title, lost := "to do", "drops"
	if s.Applied {
		title, lost = "done", "dropped"
	}
	for _, step := range s.Steps {
		if s.Applied {
			line(title, fmt.Sprintf("%s, in %v", step.text(), step.took()))
			continue
		}
		line(title, step.text())
		for _, drop := range step.Drops {
			line("", strings.Join(strings.Fields(drop), " "))
		}
	}
	if s.Window {
		line(title, "raise the window on record to --window")
	}
	if s.Drops != "" {
		line(lost, s.Drops)
	}
	if s.Note != "" && !s.Applied {
		line("note", s.Note)
	}
	return all
}

// summary describes the result in a sentence.
func (s *State) summary() string {
	switch {
	case s.Applied && s.done():
		return "another run has done it meanwhile"
	case s.Applied:
		return "that is all"
	case s.done():
		return "nothing is to be done"
	}
	return "nothing was changed: --apply does it"
}

// print writes the SQL of a component.
func (o *Options) print(c *component, out io.Writer) error {
	files := c.files
	switch o.Print {
	case "sql":
		_, err := io.WriteString(out, c.sql())
		return err
	case "goose":
		files = c.goose
	}
	written, err := export(files(), o.Out)
	for _, name := range written {
		fmt.Fprintln(out, name)
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

// export writes all files into a directory, which it makes if necessary. If one of the files
// exists, it writes none of them.
func export(files fs.FS, dir string) (written []string, err error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if _, err := os.Lstat(name); err == nil {
			return nil, fmt.Errorf("%s is there, and is not overwritten; nothing was written", name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := fs.ReadFile(files, e.Name())
		if err != nil {
			return written, err
		}
		name := filepath.Join(dir, e.Name())
		if err := create(name, text); err != nil {
			return written, err
		}
		written = append(written, name)
	}
	return written, nil
}

// create writes a file that does not exist yet.
func create(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
