package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// texts returns the string literals of a file that are prose: the texts of errors, of log messages
// and of flags, and all others in which words follow each other. Parts that are joined with + are
// one text.
func texts(fset *token.FileSet, file *ast.File) []line {
	var lines []line
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil // a tag is for programs
		case *ast.BinaryExpr:
			if n.Op != token.ADD {
				return true
			}
			var t text
			t.join(fset, n)
			lines = append(lines, t.lines()...)
			return !t.literal // the operands have been read
		case *ast.BasicLit:
			var t text
			t.join(fset, n)
			lines = append(lines, t.lines()...)
		}
		return true
	})
	return lines
}

// A text is one string that is made of one or more literals.
type text struct {
	pieces  []piece
	literal bool // at least one piece is a literal
}

// A piece is a part of a text that is on one line of the file, with a word for each verb of fmt.
type piece struct {
	text string
	line int
	ends bool // the text continues in a new line after it
}

// join adds the pieces of an expression. An operand that is not a literal stands for a word.
func (t *text) join(fset *token.FileSet, e ast.Expr) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			t.join(fset, e.X)
			t.join(fset, e.Y)
			return
		}
	case *ast.ParenExpr:
		t.join(fset, e.X)
		return
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			t.split(s, fset.Position(e.Pos()).Line, strings.HasPrefix(e.Value, "`"))
			t.literal = true
			return
		}
	}
	t.pieces = append(t.pieces, piece{text: "X", line: fset.Position(e.Pos()).Line})
}

// split adds the lines of a literal. Those of a raw literal are lines of the file as well.
func (t *text) split(s string, at int, raw bool) {
	parts := strings.Split(s, "\n")
	for i, part := range parts {
		said := strings.ReplaceAll(verb.ReplaceAllString(part, "X"), "%%", "%")
		p := piece{text: strings.ReplaceAll(said, "\r", ""), line: at, ends: i < len(parts)-1}
		if raw {
			p.line += i
		}
		t.pieces = append(t.pieces, p)
	}
}

var (
	verb  = regexp.MustCompile(`%[-+# 0]*(\[\d+\])?(\d+|\*)?(\.(\d+|\*)?)?[a-zA-Z]`)
	words = regexp.MustCompile(`[A-Za-z]{2,}[,;:]? ([a-z]{2,}|X\b)`)
	// Signs of code in a literal: SQL, HTML, JSON, Go, Lua, a shell.
	foreign = regexp.MustCompile(
		`\b(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|FROM|WHERE|VALUES|PRAGMA|GRANT|INDEX|TABLE|LOCK|KEYS|ARGV)\b` +
			`|</?[a-z]+[ >/]|^\s*[{\[]"|:=|\blocal [a-z]+ =|\$\{|&&`)
)

// lines returns the paragraphs of a text that is prose. In a text of several lines, as usage texts
// are, a line that is indented begins a new one.
func (t *text) lines() []line {
	if !t.literal || !t.prose() {
		return nil
	}
	var lines []line
	var now line
	fresh := true
	end := func() {
		if words.MatchString(now.text) {
			lines = append(lines, now)
		}
		now = line{}
	}
	for _, p := range t.pieces {
		if fresh && (strings.TrimSpace(p.text) == "" || strings.HasPrefix(p.text, " ") ||
			strings.HasPrefix(p.text, "\t")) {
			end()
		}
		if fresh {
			now.add(strings.TrimLeft(p.text, " \t"), " ", p.line)
		} else {
			now.add(p.text, "", p.line)
		}
		fresh = p.ends
	}
	end()
	return lines
}

// prose reports whether a text has words that follow each other, and is not code.
func (t *text) prose() bool {
	var all strings.Builder
	for _, p := range t.pieces {
		all.WriteString(p.text)
		if p.ends {
			all.WriteByte('\n')
		}
	}
	return words.MatchString(all.String()) && !foreign.MatchString(all.String())
}
