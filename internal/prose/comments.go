package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
)

// readGo returns the comments of a Go file, and, unless it is a test, its texts.
func readGo(name string, content []byte) ([]document, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, content,
		parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	var docs []document
	if lines := remarks(fset, file); len(lines) > 0 {
		docs = append(docs, document{name, comments, lines})
	}
	if strings.HasSuffix(name, "_test.go") {
		return docs, nil
	}
	if lines := texts(fset, file); len(lines) > 0 {
		docs = append(docs, document{name, literals, lines})
	}
	return docs, nil
}

// remarks returns the paragraphs of all comments of a file.
func remarks(fset *token.FileSet, file *ast.File) []line {
	var lines []line
	names := documented(file)
	for _, group := range file.Comments {
		p := paragraph{}
		for n, c := range group.List {
			at := fset.Position(c.Pos()).Line
			for i, text := range strings.Split(bare(c.Text), "\n") {
				if name := names[group]; n == 0 && i == 0 && name != "" &&
					strings.HasPrefix(text, name+" ") {
					text = "X" + strings.TrimPrefix(text, name)
				}
				p.read(text, at+i)
			}
		}
		lines = append(lines, p.close()...)
	}
	return lines
}

// documented returns the name to which each doc comment belongs. A comment begins with that name,
// and a name is not prose.
func documented(file *ast.File) map[*ast.CommentGroup]string {
	names := map[*ast.CommentGroup]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names[n.Doc] = n.Name.Name
		case *ast.GenDecl:
			for _, spec := range n.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[n.Doc], names[spec.Doc] = spec.Name.Name, spec.Name.Name
				case *ast.ValueSpec:
					names[n.Doc], names[spec.Doc] = spec.Names[0].Name, spec.Names[0].Name
				}
			}
		case *ast.Field:
			if len(n.Names) > 0 {
				names[n.Doc] = n.Names[0].Name
			}
		}
		return true
	})
	return names
}

// directive matches comments for tools: //go:build, //nolint:funlen, //line, //export.
var directive = regexp.MustCompile(`^//([a-z0-9]+:[a-zA-Z0-9]|line |export |nolint)`)

// bare returns a comment without its marks. For a directive it returns the empty string.
func bare(comment string) string {
	if text, ok := strings.CutPrefix(comment, "/*"); ok {
		return strings.TrimSuffix(text, "*/")
	}
	if directive.MatchString(comment) {
		return ""
	}
	return strings.TrimPrefix(strings.TrimPrefix(comment, "//"), " ")
}

// A paragraph collects the lines of a comment.
type paragraph struct {
	done   []line
	now    line
	listed bool // the last text was an item of a list, whose further lines are indented
	output bool // what follows is the output that an example has to print
}

var (
	item       = regexp.MustCompile(`^\s*([-*+•]|\d+[.)])\s+`)
	definition = regexp.MustCompile(`^\[[^\]]+\]: `)
	output     = regexp.MustCompile(`(?i)^(unordered )?output:`)
	codeSpan   = regexp.MustCompile("`[^`]+`")
)

// read takes the next line of a comment. As in a doc comment, indented lines are code, unless they
// belong to a list.
func (p *paragraph) read(text string, at int) {
	marker := item.FindString(text)
	indented := strings.HasPrefix(text, "\t") || strings.HasPrefix(text, "  ")
	switch {
	case p.output:
	case output.MatchString(text):
		p.output = true
	case strings.TrimSpace(text) == "" || definition.MatchString(text):
		p.end()
	case marker != "":
		p.end()
		p.listed = true
		p.add(text[len(marker):], at)
	case indented && !p.listed:
		p.end()
	case strings.HasPrefix(text, "# "):
		p.end()
		p.add(text[2:], at)
		p.end()
	default:
		p.add(text, at)
	}
}

func (p *paragraph) add(text string, at int) {
	p.now.add(codeSpan.ReplaceAllString(strings.TrimSpace(text), "X"), " ", at)
}

func (p *paragraph) end() {
	if p.now.text != "" {
		p.done = append(p.done, p.now)
	}
	p.now, p.listed = line{}, false
}

func (p *paragraph) close() []line {
	p.end()
	return p.done
}
