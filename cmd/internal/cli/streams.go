package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
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
	// Width is the width of the terminal, or what COLUMNS says. It is zero if Out is not a terminal
	// and there is no COLUMNS: lines may then have any length.
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
	if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && width > 0 {
		s.Width = width
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
	text, fits := s.align(append([][]string{head}, rows...))
	if !fits {
		return s.blocks(head, rows)
	}
	first, rest, _ := strings.Cut(text, "\n")
	_, err := fmt.Fprintf(s.Out, "%s\n%s", s.Paint(Bold, first), rest)
	return err
}

// Columns returns a table without a head, for Lines. If a line is wider than the terminal, each row
// becomes a sentence instead: its first value, a colon, and the others.
func (s *Streams) Columns(rows [][]string) string {
	text, fits := s.align(rows)
	if fits {
		return text
	}
	text = ""
	for _, row := range rows {
		text += row[0] + ": " + strings.Join(row[1:], ", ") + "\n"
	}
	return text
}

// align puts rows into columns, and reports whether they fit the terminal.
func (s *Streams) align(rows [][]string) (text string, fits bool) {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // to a strings.Builder
	for line := range strings.Lines(out.String()) {
		if s.Width > 0 && columns(strings.TrimRight(line, " \n")) > s.Width {
			return "", false
		}
	}
	return out.String(), true
}

func (s *Streams) blocks(head []string, rows [][]string) error {
	for _, row := range rows {
		_, err := fmt.Fprintln(s.Out, s.Paint(Bold, strings.TrimSpace(head[0]+" "+row[0])))
		fields := make([][2]string, 0, len(row))
		for i := 1; i < len(row); i++ {
			fields = append(fields, [2]string{"  " + head[i], row[i]})
		}
		if err = errors.Join(err, s.Fields(fields...)); err != nil {
			return err
		}
	}
	return nil
}

// Fields writes names and values, one a line. It breaks values that are too long for the terminal.
func (s *Streams) Fields(fields ...[2]string) error {
	most := 0
	for _, field := range fields {
		most = max(most, columns(field[0]))
	}
	var text strings.Builder
	for _, field := range fields {
		pad := strings.Repeat(" ", most-columns(field[0])+2)
		text.WriteString(strings.TrimRight(field[0]+pad+
			wrap(field[1], s.Width, most+2, most+2), " ") + "\n")
	}
	_, err := io.WriteString(s.Out, text.String())
	return err
}

// Lines writes a text. It breaks lines that are too long for the terminal between words, and
// indents the continued lines: by indent, or by two more than the line itself if that is indented.
func (s *Streams) Lines(indent int, text string) error {
	var out strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		words := strings.TrimLeft(line, " ")
		begin, hang := len(line)-len(words), indent
		if begin > 0 {
			hang = begin + 2
		}
		out.WriteString(line[:begin] + wrap(words, s.Width, begin, hang) + "\n")
	}
	_, err := io.WriteString(s.Out, out.String())
	return err
}

// unbroken stands for a space at which wrap does not break a line.
const unbroken = "\x00"

// Whole marks a text at whose spaces Lines does not break a line, such as a command to copy.
func Whole(text string) string { return strings.ReplaceAll(text, " ", unbroken) }

// number is a number in groups of three digits, with its unit.
var number = regexp.MustCompile(`\d+(?: \d{3}\b)*(?: (?:%|(?:[KMGTP]i)?B\b))?`)

// wrap breaks a text that begins at column into lines. The others begin at hang, which is not less.
// It cuts a word that is longer than a line.
func wrap(text string, width, column, hang int) string {
	const least = 20
	if width == 0 || columns(text)+column <= width {
		return strings.ReplaceAll(text, unbroken, " ")
	}
	left, room := max(width-column, least), max(width-hang, least)
	var out strings.Builder
	for _, word := range strings.Fields(number.ReplaceAllStringFunc(text, Whole)) {
		longest := room
		if strings.Contains(word, unbroken) {
			longest = len(word)
		}
		for part := range slices.Chunk([]rune(word), longest) {
			n := columns(string(part))
			switch {
			case out.Len() == 0:
			case 1+n > left:
				out.WriteString("\n" + strings.Repeat(" ", hang))
				left = room
			default:
				out.WriteByte(' ')
				left--
			}
			out.WriteString(string(part))
			left -= n
		}
	}
	return strings.ReplaceAll(out.String(), unbroken, " ")
}

// escape is what Paint puts around a text.
var escape = regexp.MustCompile("\x1b\\[[0-9]*m")

// columns returns how wide a text is on the terminal.
func columns(text string) int {
	return utf8.RuneCountInString(escape.ReplaceAllString(text, ""))
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
