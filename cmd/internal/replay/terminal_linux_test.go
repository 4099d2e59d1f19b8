package replay

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// terminal is a terminal that records everything it gets.
type terminal struct {
	*os.File
	mu   sync.Mutex
	text []byte
	more *sync.Cond
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	control := func(request uintptr, arg *int32) {
		_, _, no := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request,
			uintptr(unsafe.Pointer(arg)))
		require.EqualValues(t, 0, no)
	}
	var number, unlocked int32
	control(syscall.TIOCGPTN, &number)
	control(syscall.TIOCSPTLCK, &unlocked)
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	s := &terminal{File: slave}
	s.more = sync.NewCond(&s.mu)
	read := make(chan struct{})
	go func() {
		defer close(read)
		s.read(master)
	}()
	t.Cleanup(func() {
		_ = slave.Close() // ends read: the master has nobody to read from
		<-read
		_ = master.Close()
	})
	return s
}

func (s *terminal) read(master *os.File) {
	chunk := make([]byte, 4096)
	for {
		n, err := master.Read(chunk)
		s.mu.Lock()
		s.text = append(s.text, chunk[:n]...)
		s.more.Broadcast()
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// until waits for a text, at most as long as a test should take, and returns everything so far.
func (s *terminal) until(text string) string {
	deadline := time.Now().Add(20 * time.Second)
	late := time.AfterFunc(time.Until(deadline), s.more.Broadcast)
	defer late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(string(s.text), text) && time.Now().Before(deadline) {
		s.more.Wait()
	}
	return string(s.text)
}

// On a terminal a bar below the lines shows how much is left to look at. At the end it is removed.
func TestBar(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(4)
	r.replay(cli.Done, "--max", "1")
	screen := newTerminal(t)
	r.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		screen.until("0 of 3")
		return nil, nil, false // the request is handled as usual
	})
	r.main(t.Context(), screen.File, screen.File, cli.Done)
	text := screen.until("3 sent, ")
	const wipe = "\r\x1b[K"
	lines := strings.Split(text, "\r\n")
	require.GreaterOrEqual(t, len(lines), 4, "the screen is %q", text)
	require.True(t, strings.HasPrefix(lines[0],
		wipe+"replaying  [....................]  0 %  0 of 3"), "the screen is %q", text)
	for i, line := range lines[:3] {
		assert.Contains(t, line, wipe+"sent     id=",
			"line %d is %q: the bar is not gone from it", i, line)
	}
	assert.Contains(t, lines[2], "1 of 3", "the bar does not come back: %q", text)
	assert.Contains(t, lines[3], "2 of 3", "the bar does not come back: %q", text)
	last := lines[3]
	assert.Contains(t, last, wipe+"3 sent, ", "the bar is left: %q", last)
}
