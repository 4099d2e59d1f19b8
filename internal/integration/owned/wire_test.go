package owned_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// wire records the answers of Redis to the scripts of owned partitions, between the client and the
// package, so the result does not depend on what the package believes. It recognizes each script by
// the words of its answer.
type wire struct {
	ledger *ledger
	prefix []string // by source

	mu    sync.Mutex
	known map[string]*atomic.Uint64 // by tag: the newest epoch that we were given
	tags  map[string]partition

	// after how many calls that change a mapping the process kills itself; 0: never
	remaps atomic.Int64
}

func newWire(l *ledger, prefix []string) *wire {
	return &wire{ledger: l, prefix: prefix, known: map[string]*atomic.Uint64{},
		tags: map[string]partition{}}
}

// tagOf returns the prefix of the keys of a partition.
func tagOf(prefix, source string, number uint16) string {
	text := binary.BigEndian.AppendUint32(append([]byte(source), 0), uint32(number))
	sum := sha256.Sum256(text)
	return prefix + ":{" + hex.EncodeToString(sum[:8]) + "}"
}

// expect records which partition a tag belongs to, and returns the epoch that we have there.
func (w *wire) expect(where partition) *atomic.Uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	tag := tagOf(w.prefix[where.source], sourceName(where.source), where.part)
	if w.known[tag] == nil {
		w.known[tag] = new(atomic.Uint64)
		w.tags[tag] = where
	}
	return w.known[tag]
}

func (w *wire) find(tag string) (partition, *atomic.Uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tags[tag], w.known[tag]
}

// DialHook implements redis.Hook.
func (w *wire) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return next(ctx, network, addr)
	}
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
		if (strings.HasSuffix(key, ":head") || strings.HasSuffix(key, ":map")) &&
			w.remaps.Add(-1) == 0 {
			w.ledger.write(record{kind: dying})
			die()
		}
	}
}

// after records grants and accepted turns.
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

// note turns one answer into a record.
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
		before, _ := reply[7].(int64)
		r.kind, r.key = granted, uint64(before)
		newest.Store(r.epoch)
		return r, true
	case "done", "lapsed", "shared", "behind":
		t, err := readBatch(args)
		if err != nil {
			panic(fmt.Sprintf("a turn that was answered %q has another layout than is known here: %v", word, err))
		}
		r.kind, r.epoch, r.key = wrote, t.epoch, uint64(t.marks)
		if word != "lapsed" {
			r.attempt = 1 // the lease was renewed
		}
		return r, true
	}
	return record{}, false
}

// batchArgs are the arguments of batch.lua.
type batchArgs struct {
	epoch                         uint64
	marks, touches, begins, ended int
}

// The positions of the arguments, as the header of batch.lua counts them from 1. The check depends
// on them, so an argument that does not look as expected is an error.
const (
	argToken, argEpoch                    = 0, 1
	argMarks, argTouches, argBegins, rest = 9, 10, 11, 12
)

func readBatch(args []any) (t batchArgs, err error) {
	if len(args) < rest {
		return t, fmt.Errorf("%d arguments of at least %d", len(args), rest)
	}
	token, ok1 := args[argToken].(string)
	epoch, ok2 := args[argEpoch].(uint64)
	marks, ok3 := args[argMarks].(string)
	touches, ok4 := args[argTouches].(string)
	begins, ok5 := args[argBegins].(int)
	switch {
	case !ok1 || !ok2 || !ok3 || !ok4 || !ok5:
		return t, fmt.Errorf("token %T, epoch %T, marks %T, touches %T, begins %T",
			args[argToken], args[argEpoch], args[argMarks], args[argTouches], args[argBegins])
	case len(token) != 16 || len(marks)%8 != 0 || len(touches)%8 != 0 || begins < 0 ||
		len(args) < rest+2*begins:
		return t, fmt.Errorf(
			"a token of %d bytes, marks of %d, touches of %d, %d begins in %d arguments",
			len(token), len(marks), len(touches), begins, len(args))
	}
	for i, arg := range args[rest:] {
		text, _ := arg.(string)
		if ids := i < 2*begins && i%2 == 1; ids && (text == "" || len(text)%8 != 0) ||
			!ids && !fieldName.MatchString(text) {
			return t, fmt.Errorf("argument %d is %q: neither a field nor ids in their place",
				rest+i+1, text)
		}
	}
	return batchArgs{epoch, len(marks) / 8, len(touches) / 8, begins, len(args) - rest - 2*begins},
		nil
}

var fieldName = regexp.MustCompile(`^\d+:\d+$`)
