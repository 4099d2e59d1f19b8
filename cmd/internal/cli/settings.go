package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// fileVariable names the file of settings. The default is onceward/config in the user's directory
// of configuration.
const fileVariable = "ONCEWARD_CONFIG"

// variable returns the environment variable that holds the value of a flag.
func variable(name string) string {
	return "ONCEWARD_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// setting is a value that does not come from the command line.
type setting struct{ value, source string }

// settle sets the flags that are not on the command line. It takes them from the environment first,
// and the remaining ones from the file.
func (f *Flags) settle(c *cobra.Command, env func(string) (string, bool)) error {
	if len(f.settings) == 0 || env == nil {
		return f.missing()
	}
	if err := f.take(func(name string) setting {
		value, _ := env(variable(name))
		return setting{value, "the environment, " + variable(name)}
	}); err != nil {
		return err
	}
	inFile, err := fromFile(c.Root(), env)
	if err != nil {
		return err
	}
	if err := f.take(func(name string) setting { return inFile[name] }); err != nil {
		return err
	}
	return f.missing()
}

// take sets the flags that one source has values for: an empty value is none. Flags that are
// already set come from a stronger source.
func (f *Flags) take(from func(name string) setting) error {
	excluded := make(map[string]bool)
	for name, of := range f.instead {
		for _, other := range of {
			excluded[other] = excluded[other] || f.Changed(name)
		}
	}
	for _, name := range f.settings {
		s := from(name)
		if s.value == "" || excluded[name] || f.Changed(name) {
			continue
		}
		f.sources[name] = s.source
		if err := f.Set(name, s.value); err != nil {
			return err
		}
	}
	return nil
}

// fromFile reads lines "name = value". The file may hold the settings of all commands.
func fromFile(root *cobra.Command, env func(string) (string, bool)) (map[string]setting, error) {
	path, named := filePath(env)
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the file of settings: %w", err)
	}
	known := allSettings(root)
	found := make(map[string]setting)
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || value == "" || !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s:%d is not name = value; the names are %s", path, number,
				strings.Join(known, ", "))
		}
		found[name] = setting{value, fmt.Sprintf("%s:%d", path, number)}
	}
	return found, nil
}

// filePath returns where the file of settings is, and whether the user has named it.
func filePath(env func(string) (string, bool)) (path string, named bool) {
	if path, named = env(fileVariable); named && path != "" {
		return path, true
	}
	if dir, ok := env("XDG_CONFIG_HOME"); ok && dir != "" {
		return filepath.Join(dir, "onceward", "config"), false
	}
	if home, ok := env("HOME"); ok && home != "" {
		return filepath.Join(home, ".config", "onceward", "config"), false
	}
	return "", false
}

// allSettings returns the names of the settings of all commands.
func allSettings(root *cobra.Command) (names []string) {
	for _, c := range root.Commands() {
		c.Flags().VisitAll(func(flag *pflag.Flag) {
			if strings.HasSuffix(flag.Usage, " [$"+variable(flag.Name)+"]") {
				names = append(names, flag.Name)
			}
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// origins extends an error by the sources of the values of those flags that its text names.
func (f *Flags) origins(text string) string {
	full := text
	for _, name := range f.settings {
		source := f.sources[name]
		named := regexp.MustCompile(`--` + regexp.QuoteMeta(name) + `([^-\w]|$)`)
		if source != "" && named.MatchString(text) {
			full += fmt.Sprintf("\n--%s is from %s", name, source)
		}
	}
	return full
}
