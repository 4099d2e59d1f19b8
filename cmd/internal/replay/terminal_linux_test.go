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

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// terminal is a terminal, and all that it has been sent.
type terminal struct {
	*os.File
	mu   sync.Mutex
	text []byte
	more *sync.Cond
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	control := func(request uintptr, arg *int32) {
		if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request,
			uintptr(unsafe.Pointer(arg))); no != 0 {
			t.Fatal(no)
		}
	}
	var number, unlocked int32
	control(syscall.TIOCGPTN, &number)
	control(syscall.TIOCSPTLCK, &unlocked)
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
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

// until waits for a text, and returns all that came, for as long as a test should take.
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

// On a terminal there is a bar of what is left to look at, below the lines, and at the end it is
// gone.
func TestBar(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(4)
	r.replay(cli.Done, "--max", "1")
	screen := newTerminal(t)
	r.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		screen.until("0 of 3")
		return nil, nil, false // as if it had not been there
	})
	r.main(t.Context(), screen.File, screen.File, cli.Done)
	text := screen.until("3 sent, ")
	const wipe = "\r\x1b[K"
	lines := strings.Split(text, "\r\n")
	if len(lines) < 4 || !strings.HasPrefix(lines[0],
		wipe+"replaying  [....................]  0 %  0 of 3") {
		t.Fatalf("the screen is %q", text)
	}
	for i, line := range lines[:3] {
		if !strings.Contains(line, wipe+"sent     id=") {
			t.Errorf("line %d is %q: the bar is not gone from it", i, line)
		}
	}
	if !strings.Contains(lines[2], "1 of 3") || !strings.Contains(lines[3], "2 of 3") {
		t.Errorf("the bar does not come back: %q", text)
	}
	if last := lines[3]; !strings.Contains(last, wipe+"3 sent, ") {
		t.Errorf("the bar is left: %q", last)
	}
}
