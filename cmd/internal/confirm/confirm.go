// Package confirm asks a person before something is changed for good.
package confirm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// Ask writes a question, and reports whether the answer was yes; no answer is a no. It returns with
// the context's cause when ctx ends first, and goes on to wait for a line of in.
func Ask(ctx context.Context, question string, in io.Reader, out io.Writer) (bool, error) {
	fmt.Fprintf(out, "\n%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() { // the terminal heeds no context; the process ends with the command
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
