//go:build !linux

package skipreport

import (
	"errors"
	"os"
)

// parentStderr fails: without /proc only the terminal can be opened.
func parentStderr() (*os.File, error) { return nil, errors.ErrUnsupported }
