package sqlmigrate

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Files returns the migrations with names put in, as golang-migrate names them:
// 0001_name.up.sql and 0001_name.down.sql. Each file records its version, so that Check finds
// what another tool has done. The tool keeps versions of its own: give it a table and a directory
// for each component. With MySQL its connection must allow several statements at once; with
// PostgreSQL the tool must send statements one by one (x-multi-statement), because a version that
// drops an index online has a statement that cannot run in a transaction.
func (m *Migrations) Files() fs.FS {
	files := memory{}
	for i, v := range m.versions {
		files[fmt.Sprintf("%04d_%s.up.sql", i+1, v.name)] = strings.Join(m.upward(i+1),
			"\n\n") + "\n"
		files[fmt.Sprintf("%04d_%s.down.sql", i+1, v.name)] = strings.Join(m.downward(i+1),
			"\n\n") + "\n"
	}
	return files
}

// GooseFiles returns the migrations as goose needs them: 0001_name.sql, with both directions in one
// file.
func (m *Migrations) GooseFiles() fs.FS {
	files := memory{}
	for i, v := range m.versions {
		head := ""
		if outside(v.up) || outside(v.down) {
			head = "-- +goose NO TRANSACTION\n"
		}
		files[fmt.Sprintf("%04d_%s.sql", i+1, v.name)] = head + "-- +goose Up\n" +
			goose(m.upward(i+1)) + "\n-- +goose Down\n" + goose(m.downward(i+1))
	}
	return files
}

// SQL returns everything that makes the newest version from nothing, in one text, for those who
// keep their schema by hand. Each statement ends with a semicolon at the end of a line. It is for
// tables that do not exist yet, so no index is dropped online.
func (m *Migrations) SQL() string {
	var all []string
	for i := range m.versions {
		all = append(all, atOnce(m.versions[i].up)...)
	}
	all = append(all, m.engine.create, m.engine.record(m.Newest()))
	return strings.Join(all, "\n\n") + "\n"
}

func (m *Migrations) upward(to int) []string {
	return slices.Concat([]string{m.engine.create}, m.versions[to-1].up,
		[]string{m.engine.record(to)})
}

func (m *Migrations) downward(from int) []string {
	return slices.Concat(m.versions[from-1].down, []string{m.engine.record(from - 1)})
}

// goose marks each statement. Goose takes a semicolon at the end of a line for the end of a
// statement, as we do, but also inside of quoted text.
func goose(statements []string) string {
	var text strings.Builder
	for _, statement := range statements {
		text.WriteString("-- +goose StatementBegin\n" + statement + "\n-- +goose StatementEnd\n")
	}
	return text.String()
}
