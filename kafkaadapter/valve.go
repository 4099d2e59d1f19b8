package kafkaadapter

import (
	"context"
	"sync"
)

// valve stops the intake where nobody can pause the partition.
type valve struct {
	mu   sync.Mutex
	shut chan struct{} // closed when it opens; nil while open
}

func (v *valve) set(open bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case open && v.shut != nil:
		close(v.shut)
		v.shut = nil
	case !open && v.shut == nil:
		v.shut = make(chan struct{})
	}
}

// wait returns when the valve is open, or an error when ctx ends.
func (v *valve) wait(ctx context.Context) error {
	v.mu.Lock()
	shut := v.shut
	v.mu.Unlock()
	if shut == nil {
		return nil
	}
	select {
	case <-shut:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
