package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/term"
)

// Streams are the inputs and outputs of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Env looks up a variable of the environment. If it is nil, there are no variables and no file
	// of settings.
	Env func(name string) (string, bool)
	// Width is the width of the terminal. It is zero if Out is not a terminal: lines may then have
	// any length.
	Width int
	// Color allows colors.
	Color bool
}

// Standard returns the streams of the process.
func Standard() *Streams {
	s := &Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv}
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		s.Width = width
		s.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return s
}

// Style is how a text looks if colors are allowed.
type Style string

// Styles of texts.
const (
	Bold   Style = "1"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
)

// Paint shows a text in a style.
func (s *Streams) Paint(style Style, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}

// Table writes rows below their head. If a line is wider than the terminal, each row becomes a
// block of lines: its first value, and below it the names and values of the others.
func (s *Streams) Table(head []string, rows [][]string) error {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if s.Width > 0 && utf8.RuneCountInString(strings.TrimRight(line, " \n")) > s.Width {
			return s.blocks(head, rows)
		}
	}
	first, rest, _ := strings.Cut(text.String(), "\n")
	_, err := fmt.Fprintf(s.Out, "%s\n%s", s.Paint(Bold, first), rest)
	return err
}

func (s *Streams) blocks(head []string, rows [][]string) error {
	for _, row := range rows {
		if _, err := fmt.Fprintln(s.Out, s.Paint(Bold,
			strings.TrimSpace(head[0]+" "+row[0]))); err != nil {
			return err
		}
		fields := make([][2]string, 0, len(row))
		for i := 1; i < len(row); i++ {
			fields = append(fields, [2]string{"  " + head[i], row[i]})
		}
		if err := s.Fields(fields...); err != nil {
			return err
		}
	}
	return nil
}

// Fields writes names and values, one a line. It breaks values that are too long for the terminal.
func (s *Streams) Fields(fields ...[2]string) error {
	most := 0
	for _, field := range fields {
		most = max(most, utf8.RuneCountInString(field[0]))
	}
	var text strings.Builder
	for _, field := range fields {
		pad := strings.Repeat(" ", most-utf8.RuneCountInString(field[0])+2)
		text.WriteString(strings.TrimRight(field[0]+pad+wrap(field[1], s.Width, most+2),
			" ") + "\n")
	}
	_, err := io.WriteString(s.Out, text.String())
	return err
}

// Lines writes a text. It breaks lines that are too long for the terminal between words, and
// indents the continued lines.
func (s *Streams) Lines(indent int, text string) error {
	_, err := fmt.Fprintln(s.Out, wrap(text, s.Width, indent))
	return err
}

// wrap breaks a text that begins at column into lines that begin at the same column. It cuts a word
// that is longer than a line.
func wrap(text string, width, column int) string {
	const least = 20
	if width == 0 || utf8.RuneCountInString(text)+column <= width {
		return text
	}
	room, used := max(width-column, least), 0
	var out strings.Builder
	for _, word := range strings.Fields(text) {
		for part := range pieces(word, room) {
			n := utf8.RuneCountInString(part)
			switch {
			case used == 0:
			case used+1+n > room:
				out.WriteString("\n" + strings.Repeat(" ", column))
				used = 0
			default:
				out.WriteByte(' ')
				used++
			}
			out.WriteString(part)
			used += n
		}
	}
	return out.String()
}

// pieces yields parts of a word that fit into a line.
func pieces(word string, room int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		runes := []rune(word)
		for len(runes) > room {
			if !yield(string(runes[:room])) {
				return
			}
			runes = runes[room:]
		}
		yield(string(runes))
	}
}

// Size formats a number of bytes, in the unit that needs few digits.
func Size(bytes float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for ; bytes >= 1024 && i < len(units)-1; i++ {
		bytes /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%.0f B", bytes)
	}
	return fmt.Sprintf("%.1f %s", bytes, units[i])
}

// LastOutput keeps the end of what was written to it.
type LastOutput struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 2 << 10

// Write implements io.Writer.
func (o *LastOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	o.text = o.text[max(0, len(o.text)-tailSize):]
	return len(p), nil
}

// String returns the text without white space around it.
func (o *LastOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.text))
}
