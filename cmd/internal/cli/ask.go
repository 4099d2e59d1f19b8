package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// Ask writes a question, and reports whether the answer was yes; no answer is a no. When ctx ends
// first it returns its cause, and a goroutine stays that reads a line of in: a read of a terminal
// does not end with a context, and the process ends with the command.
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
