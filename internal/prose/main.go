package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// errUnclean means that the check ran, and that it failed.
var errUnclean = errors.New("the prose check failed")

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUnclean):
		os.Exit(1)
	case err != nil:
		_, _ = fmt.Fprintf(os.Stderr, "prose: %v\n", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("prose", flag.ContinueOnError)
	root := flags.String("root", ".", "root directory of the repository")
	vale := flags.String("vale", "", "path of the vale binary")
	update := flags.Bool("update", false,
		"remove the lines of unclean.txt that have to go, and follow renamed files")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *vale == "" {
		return errors.New("-vale is empty; scripts/prose.sh builds vale and passes its path")
	}
	docs, err := collect(*root)
	if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		docs = within(docs, flags.Args())
	}
	breaches, err := lint(ctx, *vale, filepath.Join(*root, home), docs)
	if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return show(out, breaches)
	}
	path := filepath.Join(*root, home, uncleanFile)
	listed, err := readList(path)
	if err != nil {
		return err
	}
	if *update {
		list := shorten(listed, dirty(breaches), renames(ctx, *root))
		_, _ = fmt.Fprintf(out, "prose: %d files are not clean yet, of %d on the list before\n",
			len(list), len(listed))
		return writeList(path, list)
	}
	return report(out, judge(breaches, listed, exists(*root)), len(listed), len(docs))
}

// within returns the documents below the given paths.
func within(docs []document, paths []string) []document {
	return slices.DeleteFunc(docs, func(d document) bool {
		return !slices.ContainsFunc(paths, func(p string) bool {
			return below(d.path, filepath.ToSlash(filepath.Clean(p)))
		})
	})
}

// show prints findings.
func show(out io.Writer, breaches []breach) error {
	for _, f := range breaches {
		_, _ = fmt.Fprintln(out, f)
	}
	if len(breaches) > 0 {
		return errUnclean
	}
	return nil
}

// report prints what is wrong, or one line that says that nothing is.
func report(out io.Writer, problems []string, listed, docs int) error {
	for _, p := range problems {
		_, _ = fmt.Fprintln(out, p)
	}
	if len(problems) > 0 {
		return errUnclean
	}
	_, _ = fmt.Fprintf(out, "prose: %d texts checked, %d files are not clean yet\n", docs, listed)
	return nil
}

// exists reports whether a path exists below root.
func exists(root string) func(string) bool {
	return func(path string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err == nil
	}
}
