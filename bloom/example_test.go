package bloom_test

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/bloom"
)

// One process owns a store of marks. It reads what is there, and nobody else adds marks afterwards.
func Example() {
	f, err := bloom.New(bloom.Options{Window: 6 * time.Hour, Rate: 500})
	if err != nil {
		fmt.Println(err)
		return
	}
	seen, fresh := [16]byte{1}, [16]byte{2}
	ctx, source := context.Background(), bloom.Source{Name: "orders"}
	feed, err := f.Rebuild(ctx, source,
		func(_ context.Context, yield func(int64, [16]byte) error) error {
			return yield(0, seen)
		}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ask(f, fresh)
	if err := feed.Open(time.Now().Add(time.Minute)); err != nil {
		fmt.Println(err)
	}
	ask(f, fresh)
	ask(f, seen)
	f.Add(fresh) // before its mark is sent
	ask(f, fresh)
	// Output:
	// unknown: loading
	// new
	// maybe
	// maybe
}

func ask(f *bloom.Filter, id [16]byte) {
	answer, reason := f.Check(id)
	if reason != bloom.None {
		fmt.Printf("%v: %v\n", answer, reason)
		return
	}
	fmt.Println(answer)
}
