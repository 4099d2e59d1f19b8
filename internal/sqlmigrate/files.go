package sqlmigrate

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

var fileName = regexp.MustCompile(`^([0-9]{4})_([a-z0-9_]+)\.(up|down)\.sql$`)

// load reads the versions of a dialect, with names put in. Every file must belong to a version.
func load(files fs.FS, n names) ([]version, error) {
	dir := string(n.dialect)
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil, err
	}
	versions := make([]version, len(entries)/2)
	for _, entry := range entries {
		text, err := fs.ReadFile(files, dir+"/"+entry.Name())
		if err != nil {
			return nil, err
		}
		if err := place(versions, entry.Name(), string(text), n); err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name(), err)
		}
	}
	return versions, complete(versions)
}

// place puts one file into the version that the file's name contains.
func place(versions []version, file, text string, n names) error {
	part := fileName.FindStringSubmatch(file)
	if part == nil {
		return fmt.Errorf("is not NNNN_name.up.sql or .down.sql")
	}
	number, err := strconv.Atoi(part[1])
	if err != nil || number < 1 || number > len(versions) {
		return fmt.Errorf("is out of order, of %d versions", len(versions))
	}
	if text, err = n.fill(text); err != nil {
		return err
	}
	statements, err := split(text)
	if err != nil {
		return err
	}
	v := &versions[number-1]
	if v.name != "" && v.name != part[2] {
		return fmt.Errorf("has another name than its other half, %s", v.name)
	}
	v.name = part[2]
	if part[3] == "up" {
		v.up = statements
	} else {
		v.down = statements
	}
	return nil
}

func complete(versions []version) error {
	if len(versions) == 0 {
		return fmt.Errorf("has no version")
	}
	for i, v := range versions {
		if v.up == nil || v.down == nil {
			return fmt.Errorf("version %d is not complete", i+1)
		}
	}
	return nil
}

// split cuts a file into statements at each semicolon that ends a line. A statement keeps the
// comments above it.
func split(text string) ([]string, error) {
	var statements []string
	var current []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if line == "" && len(current) == 0 {
			continue
		}
		current = append(current, line)
		if strings.HasSuffix(line, ";") && !comment(line) {
			statements = append(statements, strings.Join(current, "\n"))
			current = nil
		}
	}
	if len(current) > 0 {
		return nil, fmt.Errorf("%q has no semicolon at its end", current[0])
	}
	if len(statements) == 0 {
		return nil, fmt.Errorf("has no statement")
	}
	return statements, nil
}

func comment(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "--") }
