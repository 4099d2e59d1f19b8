package harness

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// machineCPU is the time that the processors of this machine were busy since its start, or
// 0 where nobody tells.
func machineCPU() time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return busy(line)
}

// busy adds up the first line of /proc/stat, in hundredths of a second: user, nice, system,
// (idle, iowait,) irq, softirq and steal. What guests take is in user already.
func busy(line string) time.Duration {
	var total int64
	fields := strings.Fields(line)
	for i, text := range fields {
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0
		}
		total += n
	}
	return time.Duration(total) * 10 * time.Millisecond
}
