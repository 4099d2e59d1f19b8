package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// Ask writes a question, and reports whether the answer was yes; an empty answer is no. If ctx ends
// first, Ask returns its cause. Then a goroutine still waits for a line of in, because a context
// cannot end a read of a terminal. It ends with the process, which ends with the command.
func Ask(ctx context.Context, question string, in io.Reader, out io.Writer) (bool, error) {
	fmt.Fprintf(out, "\n%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(in).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(answer))
	}()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case a := <-answers:
		return a == "y" || a == "yes", nil
	}
}
