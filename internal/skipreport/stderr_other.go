//go:build !linux

package skipreport

import (
	"errors"
	"os"
)

// parentStderr is out of reach without /proc: the terminal must do.
func parentStderr() (*os.File, error) { return nil, errors.ErrUnsupported }
