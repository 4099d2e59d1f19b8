package migrate

import "github.com/onceward/onceward/cmd/internal/cli"

func parse(args ...string) (Options, error) {
	o := Options{To: newest}
	err := cli.Parse(o.command(), args...)
	return o, err
}
