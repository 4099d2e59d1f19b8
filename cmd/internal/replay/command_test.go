package replay

import (
	"context"
	"io"

	"github.com/onceward/onceward/cmd/internal/cli"
)

func parse(args ...string) (o Options, err error) {
	err = cli.Parse(o.command(), args...)
	return o, err
}

func execute(ctx context.Context, args []string, out, errOut io.Writer) int {
	return cli.Run(ctx, &cli.Streams{Out: out, Err: errOut}, Command(), args...)
}
