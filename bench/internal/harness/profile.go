package harness

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// Profile starts the profiles whose files are named, of processor time and of allocations; end writes them. Of
// processor time each sample has the label "side".
func Profile(cpu, memory string) (end func() error, err error) {
	var file *os.File
	if memory != "" {
		runtime.MemProfileRate = 64 << 10 // finer than the usual 512 KiB: runs are short
	}
	if cpu != "" {
		if file, err = os.Create(cpu); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return func() error {
		var failed error
		if file != nil {
			pprof.StopCPUProfile()
			failed = file.Close()
		}
		if memory != "" {
			failed = errors.Join(failed, writeAllocations(memory))
		}
		return failed
	}, nil
}

func writeAllocations(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}
