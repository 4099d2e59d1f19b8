package kafka_test

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

// faultLines is a file in which processes say what they do. They append each line at once, so the
// line stays when the process is killed afterwards.
type faultLines struct {
	file *os.File
	pid  int // of the process that writes
}

func openFaultLines(name string) (*faultLines, error) {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	return &faultLines{file, os.Getpid()}, err
}

func (l *faultLines) say(what, id, topic string, partition int32, offset int64) {
	if topic == "" {
		topic = "-"
	}
	_, err := fmt.Fprintf(l.file, "%s %d %d %s %d %d %s\n", what, time.Now().UnixMicro(),
		l.pid, topic, partition, offset, id)
	if err != nil {
		panic(err)
	}
}

// faultLine is one line of faultLines.
type faultLine struct {
	what      string
	at        time.Time
	pid       int
	topic     string
	partition int32
	offset    int64
	id        string // or the text of an error
}

// readFaultLines returns the lines of a file in the order in which they were written.
func readFaultLines(name string) (all []faultLine, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	scan := bufio.NewScanner(file)
	for scan.Scan() {
		var l faultLine
		var at int64
		var n int
		if _, err := fmt.Sscanf(scan.Text(), "%s %d %d %s %d %d", &l.what, &at, &l.pid, &l.topic,
			&l.partition, &l.offset); err != nil {
			return nil, fmt.Errorf("%q: %w", scan.Text(), err)
		}
		for i, c := range scan.Text() {
			if c != ' ' {
				continue
			}
			if n++; n == 6 {
				l.id = scan.Text()[i+1:]
				break
			}
		}
		l.at = time.UnixMicro(at)
		all = append(all, l)
	}
	return all, scan.Err()
}
