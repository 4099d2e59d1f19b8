package owned_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// wire notes what Redis answers to the scripts of owned partitions, between the client and the package:
// what is judged does not rest on what the package thinks of itself. It tells scripts from each other by
// the words that they answer.
type wire struct {
	ledger *ledger
	prefix []string // by source

	mu    sync.Mutex
	known map[string]*atomic.Uint64 // by tag: the newest epoch that was given to us
	tags  map[string]place

	remaps atomic.Int64 // the process kills itself with so many calls that change a mapping; 0 for never
}

func newWire(l *ledger, prefix []string) *wire {
	return &wire{ledger: l, prefix: prefix, known: map[string]*atomic.Uint64{}, tags: map[string]place{}}
}

// tagOf is how the keys of a partition begin.
func tagOf(prefix, source string, number uint16) string {
	text := binary.BigEndian.AppendUint32(append([]byte(source), 0), uint32(number))
	sum := sha256.Sum256(text)
	return prefix + ":{" + hex.EncodeToString(sum[:8]) + "}"
}

// expect says which partition a tag belongs to, and returns the epoch that we have there.
func (w *wire) expect(where place) *atomic.Uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	tag := tagOf(w.prefix[where.source], sourceName(where.source), where.part)
	if w.known[tag] == nil {
		w.known[tag] = new(atomic.Uint64)
		w.tags[tag] = where
	}
	return w.known[tag]
}

func (w *wire) find(tag string) (place, *atomic.Uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tags[tag], w.known[tag]
}

// DialHook implements redis.Hook.
func (w *wire) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.before(cmd)
		sent := time.Now().UnixNano()
		err := next(ctx, cmd)
		w.after(sent, cmd)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.before(cmds...)
		sent := time.Now().UnixNano()
		err := next(ctx, cmds)
		w.after(sent, cmds...)
		return err
	}
}

// scriptCall is one EVALSHA.
func scriptCall(cmd redis.Cmder) (keys, args []any, ok bool) {
	if name := cmd.Name(); name != "evalsha" && name != "eval" {
		return nil, nil, false
	}
	all := cmd.Args()
	n, err := strconv.Atoi(fmt.Sprint(all[2]))
	if err != nil || 3+n > len(all) {
		return nil, nil, false
	}
	return all[3 : 3+n], all[3+n:], true
}

// before kills the process when it is about to change a mapping for the n-th time.
func (w *wire) before(cmds ...redis.Cmder) {
	if w.remaps.Load() <= 0 {
		return
	}
	for _, cmd := range cmds {
		keys, _, ok := scriptCall(cmd)
		if !ok || len(keys) != 1 {
			continue
		}
		key := fmt.Sprint(keys[0])
		if (strings.HasSuffix(key, ":head") || strings.HasSuffix(key, ":map")) && w.remaps.Add(-1) == 0 {
			w.ledger.write(record{kind: dying})
			die()
		}
	}
}

// after notes grants, and what was accepted.
func (w *wire) after(sent int64, cmds ...redis.Cmder) {
	var all []record
	for _, cmd := range cmds {
		keys, args, ok := scriptCall(cmd)
		script, isCmd := cmd.(*redis.Cmd)
		if !ok || !isCmd || len(keys) == 0 {
			continue
		}
		reply, _ := script.Val().([]any)
		tag, isHead := strings.CutSuffix(fmt.Sprint(keys[0]), ":head")
		if !isHead || len(reply) != 14 {
			continue
		}
		if r, ok := w.note(tag, args, reply); ok {
			r.from = sent
			all = append(all, r)
		}
	}
	if len(all) > 0 {
		w.ledger.write(all...)
	}
}

// note makes a record of one answer.
func (w *wire) note(tag string, args, reply []any) (record, bool) {
	where, newest := w.find(tag)
	if newest == nil {
		return record{}, false
	}
	word, _ := reply[0].(string)
	epoch, _ := reply[6].(int64)
	seq, _ := reply[8].(int64)
	r := record{source: where.source, part: where.part, epoch: uint64(epoch), seq: uint64(seq)}
	switch word {
	case "acquired", "mine":
		r.kind = granted
		newest.Store(r.epoch)
		return r, true
	case "done", "lapsed", "shared", "behind":
		r.kind = wrote
		r.epoch, _ = strconv.ParseUint(fmt.Sprint(args[1]), 10, 64)
		return r, len(args) > 12 && word != "behind" // more than a renewal; behind has no seq of its own
	}
	return record{}, false
}
