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

// print writes the state for people.
func (s *State) print(std *cli.Streams) error {
	return errors.Join(std.Fields(s.fields()...), std.Lines(0, s.summary()))
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
	if err := export(files(), o.Out, out); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

// export writes all files into a directory, which it makes if necessary, and lists them. If one of
// the files exists, it writes none of them.
func export(files fs.FS, dir string, out io.Writer) error {
	names, err := fs.Glob(files, "*")
	if err != nil {
		return err
	}
	for i := range names {
		names[i] = filepath.Join(dir, names[i])
		if _, err := os.Lstat(names[i]); err == nil {
			return fmt.Errorf("%s is there, and is not overwritten; nothing was written", names[i])
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err = os.CopyFS(dir, files)
	for _, name := range names {
		if _, missing := os.Lstat(name); missing == nil { // after an error some may be missing
			fmt.Fprintln(out, name)
		}
	}
	return err
}
