package demo

import "github.com/onceward/onceward/cmd/internal/cli"

func parse(args ...string) (o Options, err error) {
	err = cli.Parse(o.command(), args...)
	return o, err
}
