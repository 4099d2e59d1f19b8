package keys

import (
	"context"
	"io"

	"github.com/onceward/onceward/cmd/internal/cli"
)

func options(command string, args ...string) (Options, error) {
	o := Options{Command: command}
	err := cli.Parse(o.command(), args...)
	return o, err
}

func execute(ctx context.Context, command string, args []string, in io.Reader,
	out, errOut io.Writer) int {
	o := Options{Command: command}
	return cli.Run(ctx, &cli.Streams{In: in, Out: out, Err: errOut}, o.command(), args...)
}
