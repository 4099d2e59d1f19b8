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
	return report(out, breaches, len(docs))
}

// within returns the documents below the given paths.
func within(docs []document, paths []string) []document {
	return slices.DeleteFunc(docs, func(d document) bool {
		return !slices.ContainsFunc(paths, func(p string) bool {
			return below(d.path, filepath.ToSlash(filepath.Clean(p)))
		})
	})
}

// report prints the findings, or one line that says how many texts have none.
func report(out io.Writer, breaches []breach, docs int) error {
	for _, b := range breaches {
		_, _ = fmt.Fprintln(out, b)
	}
	if len(breaches) > 0 {
		return errUnclean
	}
	_, _ = fmt.Fprintf(out, "prose: %d texts checked\n", docs)
	return nil
}
