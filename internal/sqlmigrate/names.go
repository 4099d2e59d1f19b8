package sqlmigrate

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/onceward/onceward/internal/sqlname"
)

// names are the names that replace placeholders. They have been checked.
type names struct {
	dialect       Dialect
	schema, table string
	texts         map[string]string
}

func newNames(cfg Config) names {
	return names{dialect: cfg.Dialect, schema: cfg.Schema, table: cfg.Table, texts: cfg.Texts}
}

var placeholder = regexp.MustCompile(`\{\{(table|bare|index)(?::([a-z0-9_]{1,40}))?\}\}`)

var braces = regexp.MustCompile(`\{\{[^{}\n]*\}?\}?`)

// fill puts the names in, and refuses braces that mean nothing.
func (n names) fill(text string) (string, error) {
	for name, sql := range n.texts {
		text = strings.ReplaceAll(text, "{{"+name+"}}", sql)
	}
	filled := placeholder.ReplaceAllStringFunc(text, func(found string) string {
		part := placeholder.FindStringSubmatch(found)
		return n.one(part[1], part[2])
	})
	if left := braces.FindString(filled); left != "" {
		return "", fmt.Errorf("%s is not a placeholder", left)
	}
	return filled, nil
}

func (n names) one(kind, suffix string) string {
	name := n.table
	if suffix != "" {
		name = sqlname.Derive(n.table, suffix)
	}
	if kind == "table" || kind == "index" && n.dialect == SQLite {
		return n.full(name)
	}
	return n.quote(name)
}

func (n names) full(name string) string {
	if n.schema == "" {
		return n.quote(name)
	}
	return n.quote(n.schema) + "." + n.quote(name)
}

func (n names) quote(name string) string {
	switch n.dialect {
	case MySQL:
		return sqlname.Quote(name, '`')
	case SQLServer:
		return sqlname.Quote(name, '[')
	default:
		return sqlname.Quote(name, '"')
	}
}
