package workload

import (
	"bytes"
	"context"
	"fmt"

	"github.com/onceward/onceward/bench/internal/harness"
)

// results: completions that store what the handler returned.
func (e *Env) results() []harness.Group {
	var groups []harness.Group
	for _, size := range []int{0, 100, 1 << 10, 10 << 10} {
		title := fmt.Sprintf("batch %d, new keys, result of %d bytes", typical, size)
		groups = append(groups, harness.Group{
			Workload: "result", X: float64(size), Title: title, Detail: size == 100 || size == 0,
			Open: func(ctx context.Context) (harness.Setup, error) { return e.openResult(ctx, title, size) },
		})
	}
	return groups
}

// maxResultKeys of one timing: what they store stays for the window.
const maxResultKeys = 4096

func (e *Env) openResult(ctx context.Context, title string, size int) (harness.Setup, error) {
	raw, err := dialRaw(ctx, e.Server.Addr, workers)
	if err != nil {
		return harness.Setup{}, err
	}
	o, err := rich().open(ctx, e.Server.Addr, 0)
	if err != nil {
		raw.close()
		return harness.Setup{}, err
	}
	var result []byte
	value := "1"
	if size > 0 {
		result = bytes.Repeat([]byte("r"), size)
		value = string(result)
	}
	return harness.Setup{
		Multiple: workers * typical, MaxKeys: maxResultKeys, Close: func() { o.close(); raw.close() },
		Sides: []harness.Side{
			{Name: rawSide, Run: inBatches(workers, typical, raw.cycle(value))},
			{Name: rich().name, Run: inBatches(workers, typical, o.cycles(result))},
		},
		Pairs: []harness.Pair{{Name: title, Side: rich().name, Against: rawSide, Text: rawPipelines}},
	}, nil
}
