package owned

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

func readAll(t testing.TB, s Snapshots, name string) ([]byte, error) {
	t.Helper()
	r, err := s.Load(t.Context(), name)
	if err != nil {
		return nil, err
	}
	defer func() { noErr(t, r.Close()) }()
	return io.ReadAll(r)
}

// keepsBlobs tests what every Snapshots must do.
func keepsBlobs(t *testing.T, s Snapshots, prefix string) {
	t.Helper()
	name := prefix + ":{0123456789abcdef}:-12:key.id"
	_, err := readAll(t, s, name)
	assert.ErrorIs(t, err, fs.ErrNotExist, "of what was not stored")
	old, large := []byte("old"), bytes.Repeat([]byte("0123456789abcdef"), pieceBytes/16*2+5)
	for _, blob := range [][]byte{old, large, old, large[:pieceBytes], large} {
		noErr(t, s.Store(t.Context(), name, time.Hour, bytes.NewReader(blob)))
		got, err := readAll(t, s, name)
		assert.NoError(t, err)
		assert.Equal(t, blob, got)
	}
	broken := io.MultiReader(bytes.NewReader(large[:pieceBytes+9]), iotest.ErrReader(errCut))
	err = s.Store(t.Context(), name, time.Hour, broken)
	assert.ErrorIs(t, err, errCut, "from a reader that fails")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = s.Store(ctx, name, time.Hour, bytes.NewReader(old))
	assert.ErrorIs(t, err, context.Canceled, "with a context that has ended")
	got, err := readAll(t, s, name)
	assert.NoError(t, err)
	assert.Equal(t, large, got, "after stores that failed")
	_, err = readAll(t, s, name+"x")
	assert.ErrorIs(t, err, fs.ErrNotExist, "under another name")
}

func TestDir(t *testing.T) {
	path := t.TempDir()
	s := Dir(path)
	keepsBlobs(t, s, "p")
	name := "../a/b:{x}:1:k"
	noErr(t, s.Store(t.Context(), name, time.Hour, strings.NewReader("x")))
	entries, err := os.ReadDir(path)
	noErr(t, err)
	assert.Len(t, entries, 2, "the directory")
	for _, e := range entries {
		info, err := e.Info()
		noErr(t, err)
		assert.EqualValues(t, 0o600, info.Mode(), "the mode of %s", e.Name())
	}
	err = Dir(filepath.Join(path, "none")).Store(t.Context(), name, time.Hour,
		strings.NewReader("x"))
	assert.ErrorIs(t, err, fs.ErrNotExist, "in no directory")
}

// TestDirPrunes: Dir deletes snapshots that are over and parts that were left, and nothing else.
func TestDirPrunes(t *testing.T) {
	path := t.TempDir()
	s := Dir(path)
	for name, age := range map[string]time.Duration{
		"over.snapshot": time.Second, "alive.snapshot": -time.Hour, "other": time.Hour,
		"died.snapshot.1.part": partLives + time.Minute, "written.snapshot.2.part": time.Minute,
		"other.part": 9 * time.Hour,
	} {
		file := filepath.Join(path, name)
		noErr(t, os.WriteFile(file, nil, 0o600))
		noErr(t, os.Chtimes(file, time.Now(), time.Now().Add(-age)))
	}
	noErr(t, s.Store(t.Context(), "new", time.Hour, strings.NewReader("x")))
	var left []string
	entries, err := os.ReadDir(path)
	noErr(t, err)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	got, want := fmt.Sprint(left),
		"[alive.snapshot new.snapshot other other.part written.snapshot.2.part]"
	assert.Equal(t, want, got)
}

func TestInRedis(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		s := InRedis(b.Client)
		keepsBlobs(t, s, b.Prefix)
		name := b.Prefix + ":{0123456789abcdef}:-12:key.id"
		text := b.Client.Get(t.Context(), index(name)).Val()
		p, err := readPieces(name, text)
		noErr(t, err)
		assert.Equal(t, 3, p.n)
		for _, key := range []string{index(name), p.key(0), p.key(2)} {
			ttl := b.Client.PTTL(t.Context(), key).Val()
			assert.Positive(t, ttl, "%s ends", key)
			assert.LessOrEqual(t, ttl, time.Hour, "%s ends", key)
		}
		noErr(t, b.Client.Del(t.Context(), p.key(1)).Err())
		_, err = readAll(t, s, name)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "with a piece missing")
		for _, text := range []string{"", "x", "x 0", "x -1", "x 4097", " 1"} {
			noErr(t, b.Client.Set(t.Context(), index(name), text, time.Hour).Err())
			_, err := readAll(t, s, name)
			assert.Error(t, err, "of %q", text)
			assert.NotErrorIs(t, err, fs.ErrNotExist, "of %q", text)
		}
		err = s.Store(t.Context(), name, time.Hour, strings.NewReader(""))
		assert.Error(t, err, "nothing was stored")
	})
}

// blobs are Snapshots in memory.
type blobs struct {
	mu  sync.Mutex
	all map[string][]byte
	err error
}

func (b *blobs) Load(_ context.Context, name string) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	blob, there := b.all[name]
	if b.err != nil || !there {
		return nil, errors.Join(b.err, fs.ErrNotExist)
	}
	return io.NopCloser(bytes.NewReader(blob)), nil
}

func (b *blobs) Store(_ context.Context, name string, _ time.Duration, r io.Reader) error {
	blob, err := io.ReadAll(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || err != nil {
		return errors.Join(b.err, err)
	}
	b.all[name] = blob
	return nil
}

func (b *blobs) has(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[name] != nil
}

// epochs is a partition whose first generation is over and saved in a snapshot, and what a test
// changes of the snapshot.
type epochs struct {
	client *redis.Client
	opts   Options
	blobs  *blobs
	gen    int64 // that is over
	name   string
	ids    []driver.ID
	log    *bytes.Buffer
}

// newEra must be called in a bubble.
func newEra(t *testing.T, snapshots bool) *epochs {
	t.Helper()
	_, client := redistest.Bubble(t)
	e := &epochs{client: client, opts: fewBuckets("era"), blobs: &blobs{all: map[string][]byte{}},
		ids: idsOf(t, "k", 400), log: &bytes.Buffer{}}
	e.opts.Hold, e.opts.Lease = 3*time.Hour, 10*time.Minute
	e.opts.Logger = slog.New(slog.NewTextHandler(e.log, nil))
	if snapshots {
		e.opts.Snapshots = e.blobs
	}
	var err error
	e.opts, err = e.opts.complete()
	noErr(t, err)
	s := plainStore(t, client, e.opts)
	o := takeTended(t, s, somePartition)
	o.mark(t, e.ids[:200])
	e.gen, e.name = o.genNow(), o.snapshotName(o.genNow())
	o.nextSet()
	o.mark(t, e.ids[200:300])
	time.Sleep(time.Hour) // a slice
	o.mark(t, e.ids[300:])
	time.Sleep(30 * time.Minute)
	saved := e.blobs.has(e.name)
	require.Equal(t, snapshots, saved, "of the generation that is over there is a snapshot")
	letGo(t, o)
	noErr(t, s.Close(t.Context()))
	return e
}

// next acquires the partition as its next owner, and requires that it knows all marks. It reports
// whether generation gen came from a snapshot.
func (e *epochs) next(t *testing.T) (fromSnapshot bool) {
	t.Helper()
	e.log.Reset()
	s := plainStore(t, e.client, e.opts)
	o := takeTended(t, s, somePartition)
	o.knows(t, e.ids)
	fromSnapshot = o.saver.has(e.gen)
	letGo(t, o)
	noErr(t, s.Close(t.Context()))
	return fromSnapshot
}

// inPieces moves the snapshot to Redis, in n pieces of 400 bytes and without one of them.
func (e *epochs) inPieces(t *testing.T, n int, without ...int) {
	t.Helper()
	p, blob := &pieces{e.name, "cut", n}, e.blobs.all[e.name]
	require.Greater(t, len(blob), 2*400)
	for i := range n {
		end := 400 * (i + 1)
		if i == 2 {
			end = len(blob)
		}
		noErr(t, e.client.Set(t.Context(), p.key(i), blob[400*i:end], time.Hour).Err())
	}
	noErr(t, e.client.Set(t.Context(), index(e.name), p.String(), time.Hour).Err())
	e.opts.Snapshots = InRedis(e.client)
	if len(without) == 0 {
		return
	}
	if without[0] < 0 {
		noErr(t, e.client.Set(t.Context(), p.key(1), "", time.Hour).Err())
		return
	}
	noErr(t, e.client.Del(t.Context(), p.key(without[0])).Err())
}

// TestSnapshotInRedis: the one that TestSnapshotIsRefused cuts is used when it is whole.
func TestSnapshotInRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEra(t, true)
		e.inPieces(t, 3)
		assert.True(t, e.next(t), "it was not used: %s", e.log)
	})
}

// TestSnapshotIsUsed: with a snapshot the sets are not read, but their counts must still match
// head.
func TestSnapshotIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEra(t, true)
		assert.True(t, e.next(t), "the snapshot was not used: %s", e.log)
		n := newNames("era", somePartition.Source, 0)
		for i := range e.opts.buckets() {
			e.client.Del(t.Context(), n.bucket(e.gen, i))
		}
		s := plainStore(t, e.client, e.opts)
		o, err := s.Acquire(t.Context(), somePartition)
		noErr(t, err)
		o.working.Wait()
		assert.ErrorIs(t, o.lostFor(), ErrAmnesia, "with a snapshot, and without the sets")
	})
}

// TestSnapshotIsRefused: whatever is wrong with a snapshot, the marks are known, and the log says
// what is wrong.
func TestSnapshotIsRefused(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, e *epochs){
		"missing": func(_ *testing.T, e *epochs) { delete(e.blobs.all, e.name) },
		"truncated": func(_ *testing.T, e *epochs) {
			e.blobs.all[e.name] = e.blobs.all[e.name][:900]
		},
		"flipped": func(_ *testing.T, e *epochs) { e.blobs.all[e.name][700] ^= 4 },
		"empty":   func(_ *testing.T, e *epochs) { e.blobs.all[e.name] = nil },
		"of another generation": func(_ *testing.T, e *epochs) {
			e.blobs.all[e.name] = e.blobs.all[strings.Replace(e.name, fmt.Sprint(":", e.gen),
				fmt.Sprint(":", e.gen+1), 1)]
		},
		"unreachable": func(_ *testing.T, e *epochs) { e.blobs.err = errCut },
		"newer than head": func(t *testing.T, e *epochs) {
			n := newNames("era", somePartition.Source, 0)
			noErr(t, e.client.HSet(t.Context(), n.head, "seq", 2).Err())
		},
		"of another partition": func(t *testing.T, e *epochs) {
			s := plainStore(t, e.client, e.opts)
			s.registry.batch = 1
			o := takeTended(t, s, Partition{Source: "other", Count: 1})
			var b bytes.Buffer
			noErr(t, o.filter.Load().Save(&b, e.gen))
			e.blobs.all[e.name] = b.Bytes()
			letGo(t, o)
		},
		"in Redis, a piece is gone":        func(t *testing.T, e *epochs) { e.inPieces(t, 3, 1) },
		"in Redis, the last piece is gone": func(t *testing.T, e *epochs) { e.inPieces(t, 3, 2) },
		"in Redis, cut short":              func(t *testing.T, e *epochs) { e.inPieces(t, 2) },
		"in Redis, an empty piece":         func(t *testing.T, e *epochs) { e.inPieces(t, 3, -1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEra(t, true)
				change(t, e)
				assert.False(t, e.next(t), "it was used")
				told := strings.Contains(e.log.String(),
					"of no use")
				assert.Equal(t, name != "missing" && name != "unreachable", told, "told: %s", e.log)
				assert.NotContains(t, e.log.String(), "could not be loaded", "the load has failed")
			})
		})
	}
}

// TestSnapshotOlderThanTheLastMark: a snapshot that was saved while marks were added to its
// generation lacks the later marks, and proves nothing.
func TestSnapshotOlderThanTheLastMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEra(t, false)
		e.opts.Snapshots = e.blobs
		s := plainStore(t, e.client, e.opts)
		o := takeTended(t, s, somePartition)
		o.mark(t, idsOf(t, "early", 10))
		var b bytes.Buffer
		noErr(t, o.filter.Load().Save(&b, o.genNow()))
		gen := o.genNow()
		e.blobs.all[o.snapshotName(gen)] = b.Bytes()
		late := idsOf(t, "late", 50)
		o.mark(t, late)
		e.ids = append(e.ids, late...)
		letGo(t, o) // before it is over: nobody saves it better
		noErr(t, s.Close(t.Context()))
		time.Sleep(time.Hour)
		s = plainStore(t, e.client, e.opts)
		o = takeTended(t, s, somePartition)
		o.mark(t, idsOf(t, "then", 1)) // head passes it
		letGo(t, o)
		noErr(t, s.Close(t.Context()))
		e.gen = gen
		assert.False(t, e.next(t), "it was used")
	})
}

// TestSnapshotHangs: if a snapshot cannot be loaded for half a minute, the marks are read.
func TestSnapshotHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEra(t, true)
		e.opts.Snapshots = hanging{}
		began := time.Now()
		assert.False(t, e.next(t), "it was used")
		assert.LessOrEqual(t, time.Since(began), 3*snapshotTimeout, "it took")
	})
}

// hanging is a file system that is away.
type hanging struct{}

func (hanging) Load(ctx context.Context, _ string) (io.ReadCloser, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) Store(ctx context.Context, _ string, _ time.Duration, _ io.Reader) error {
	<-ctx.Done()
	return ctx.Err()
}
