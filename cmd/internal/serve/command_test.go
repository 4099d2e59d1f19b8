package serve

import (
	"context"
	"io"

	"github.com/onceward/onceward/cmd/internal/cli"
)

func execute(ctx context.Context, args []string, out, errOut io.Writer) int {
	return cli.Run(ctx, &cli.Streams{Out: out, Err: errOut}, Command(), args...)
}
