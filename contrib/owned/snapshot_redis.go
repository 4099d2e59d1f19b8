package owned

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

const (
	// pieceBytes is how much of a snapshot one key holds. Pieces are small because all other
	// clients wait while a server reads a large value.
	pieceBytes = 256 << 10
	// maxPieces bounds a snapshot: 1 GiB.
	maxPieces = 4096
)

// InRedis keeps snapshots in Redis, in pieces of 256 KiB under keys that begin with the name of
// their partition and are in its slot. The server may be another one than the server of the sets.
// On the latter, snapshots take a fifth of the sets' memory. All keys expire. A snapshot is at most
// 1 GiB.
//
// The pieces have unique names, and the key that lists them is written last: until then a reader
// finds the earlier snapshot, or misses a piece of it.
func InRedis(client redis.UniversalClient) Snapshots { return inRedis{client} }

type inRedis struct{ client redis.UniversalClient }

// pieces names the pieces of one snapshot.
type pieces struct {
	name, id string
	n        int
}

func (p *pieces) key(i int) string { return p.name + ":" + p.id + ":" + strconv.Itoa(i) }

// String returns the value of the snapshot's key.
func (p *pieces) String() string { return p.id + " " + strconv.Itoa(p.n) }

func readPieces(name, text string) (*pieces, error) {
	id, count, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(count)
	if err != nil || id == "" || n < 1 || n > maxPieces {
		return nil, fmt.Errorf("%w: snapshot %s", script.ErrUnreadable, name)
	}
	return &pieces{name, id, n}, nil
}

// index returns the key that names the pieces.
func index(name string) string { return name + ":snapshot" }

// Load implements [Snapshots]. It takes one round trip for each piece.
func (s inRedis) Load(ctx context.Context, name string) (io.ReadCloser, error) {
	text, err := s.client.Get(ctx, index(name)).Result()
	if errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("owned: snapshot %s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("owned: snapshot %s: %w", name, err)
	}
	p, err := readPieces(name, text)
	if err != nil {
		return nil, err
	}
	return &pieceReader{ctx: ctx, client: s.client, pieces: p}, nil
}

// pieceReader reads piece after piece.
type pieceReader struct {
	ctx    context.Context //nolint:containedctx // of the Load that made it
	client redis.UniversalClient
	pieces *pieces
	next   int
	rest   []byte
}

func (r *pieceReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.next == r.pieces.n {
			return 0, io.EOF
		}
		piece, err := r.client.Get(r.ctx, r.pieces.key(r.next)).Bytes()
		if errors.Is(err, redis.Nil) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, fmt.Errorf("owned: piece %d of snapshot %s: %w", r.next, r.pieces.name, err)
		}
		r.next, r.rest = r.next+1, piece
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (r *pieceReader) Close() error { return nil }

// Store implements [Snapshots]. It takes one round trip for each piece, and two more.
func (s inRedis) Store(ctx context.Context, name string, keep time.Duration, r io.Reader) error {
	p := &pieces{name: name, id: rand.Text()}
	buf := make([]byte, pieceBytes)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if p.n == maxPieces {
				return fmt.Errorf("owned: snapshot %s has more than %d bytes",
					name, maxPieces*pieceBytes)
			}
			if err := s.client.Set(ctx, p.key(p.n), buf[:n], keep).Err(); err != nil {
				return fmt.Errorf("owned: piece %d of snapshot %s: %w", p.n, name, err)
			}
			p.n++
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("owned: snapshot %s: %w", name, err)
		}
	}
	if p.n == 0 {
		return fmt.Errorf("owned: snapshot %s is empty", name)
	}
	return s.point(ctx, p, keep)
}

// point writes the key that names the pieces, and removes the pieces that the key named before.
func (s inRedis) point(ctx context.Context, p *pieces, keep time.Duration) error {
	old, err := s.client.SetArgs(ctx, index(p.name), p.String(),
		redis.SetArgs{TTL: keep, Get: true}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("owned: snapshot %s: %w", p.name, err)
	}
	was, err := readPieces(p.name, old)
	if err != nil || was.id == p.id { // none; or this was sent twice
		return nil //nolint:nilerr // what was there ends by itself
	}
	keys := make([]string, was.n)
	for i := range keys {
		keys[i] = was.key(i)
	}
	_ = s.client.Unlink(ctx, keys...).Err() // if this fails, they expire by themselves
	return nil
}
