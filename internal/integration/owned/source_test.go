package owned_test

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// feed is the input of the consumers: a file of keys per partition, a file of committed offsets,
// and a file with the number of partitions of a source. A new consumer begins at the committed
// offset.
type feed struct {
	dir string
	mu  sync.Mutex
	of  map[partition]*partitionFiles
}

type partitionFiles struct{ log, offset *os.File }

func newFeed(dir string) *feed { return &feed{dir: dir, of: map[partition]*partitionFiles{}} }

func sourceName(source uint8) string { return "group/topic-" + strconv.Itoa(int(source)) }

func (f *feed) files(where partition) (*partitionFiles, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.of[where]; p != nil {
		return p, nil
	}
	name := filepath.Join(f.dir,
		"source-"+strconv.Itoa(int(where.source))+"-"+strconv.Itoa(int(where.part)))
	log, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	offset, err := os.OpenFile(name+"-offset", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	f.of[where] = &partitionFiles{log, offset}
	return f.of[where], nil
}

// produce appends keys to a partition. Only one process calls it.
func (f *feed) produce(where partition, keys []uint64) error {
	p, err := f.files(where)
	if err != nil {
		return err
	}
	b := make([]byte, 0, 8*len(keys))
	for _, key := range keys {
		b = binary.LittleEndian.AppendUint64(b, key)
	}
	_, err = p.log.Write(b)
	return err
}

// read returns up to n keys, from offset on.
func (f *feed) read(where partition, offset int64, n int) ([]uint64, error) {
	p, err := f.files(where)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 8*n)
	got, err := p.log.ReadAt(b, 8*offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	keys := make([]uint64, got/8)
	for i := range keys {
		keys[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return keys, nil
}

// committed returns the offset from which a new consumer reads.
func (f *feed) committed(where partition) (int64, error) {
	p, err := f.files(where)
	if err != nil {
		return 0, err
	}
	var b [8]byte
	if _, err := p.offset.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(b[:])), nil
}

// commit has no fence: a process that was stopped may set the offset back, and messages are then
// delivered again.
func (f *feed) commit(where partition, offset int64) error {
	p, err := f.files(where)
	if err != nil {
		return err
	}
	_, err = p.offset.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(offset)), 0)
	return err
}

// drained reports whether everything was consumed and committed.
func (f *feed) drained(where partition) (bool, error) {
	p, err := f.files(where)
	if err != nil {
		return false, err
	}
	info, err := p.log.Stat()
	if err != nil {
		return false, err
	}
	at, err := f.committed(where)
	return at == info.Size()/8, err
}

// count returns the number of partitions of a source, as the brokers would.
func (f *feed) count(source uint8) (int32, error) {
	text, err := os.ReadFile(filepath.Join(f.dir, "count-"+strconv.Itoa(int(source))))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	return int32(n), err
}

func (f *feed) setCount(source uint8, n int32) error {
	name := filepath.Join(f.dir, "count-"+strconv.Itoa(int(source)))
	if err := os.WriteFile(name+".new", []byte(strconv.Itoa(int(n))), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// partitionOf maps a key to a partition, as a producer does that knows of count partitions.
func partitionOf(key uint64, count int32) uint16 {
	key ^= key >> 31
	key *= 0x9e3779b97f4a7c15
	return uint16((key >> 33) % uint64(count))
}
