package sqlerr

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// NotMigrated adds what to do to the error of a statement that misses one of tables: its migrations
// have not run. The names may be quoted, and have a schema. It returns any other error as it is,
// and also one that misses another table: a trigger or a view of the user's may need that.
func NotMigrated(err error, tables ...string) error {
	if !NoTable(err) {
		return err
	}
	text := strings.ToLower(said(err))
	for _, table := range tables {
		table = unquote.Replace(table)
		if hasName(text, strings.ToLower(table)) {
			return fmt.Errorf("table %s does not exist: its migrations have not run in this schema; "+
				"call Migrate, or run `onceward migrate`: %w", table, err)
		}
	}
	return err
}

// unquote removes the quotes of all databases: names have no such characters inside.
var unquote = strings.NewReplacer(`"`, "", "`", "", "[", "", "]", "")

// said is what the database itself has said. The text of an error around that may have the
// statement, which names other tables, too.
func said(err error) string {
	var postgres interface {
		error
		SQLState() string
	}
	var server interface {
		error
		SQLErrorNumber() int32
	}
	var lite interface {
		error
		Code() int
	}
	switch {
	case errors.As(err, &postgres):
		return postgres.Error()
	case errors.As(err, &server):
		return server.Error()
	case errors.As(err, &lite):
		return lite.Error()
	}
	if mysql := mysqlError(err); mysql != nil {
		return mysql.Error()
	}
	return ""
}

// hasName reports whether name occurs in text, and not as a part of a longer name. The language of
// a server's text, and its quotes, do not matter.
func hasName(text, name string) bool {
	for rest := text; ; {
		at := strings.Index(rest, name)
		if at < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRuneInString(text[:len(text)-len(rest)+at])
		after, _ := utf8.DecodeRuneInString(rest[at+len(name):])
		if !inName(before) && !inName(after) {
			return true
		}
		rest = rest[at+len(name):]
	}
}

func inName(c rune) bool {
	return c == '_' || c == '$' || unicode.IsLetter(c) || unicode.IsDigit(c)
}
