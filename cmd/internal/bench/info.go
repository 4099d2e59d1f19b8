package bench

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// info is INFO of a master, by name: the numbers, and all of it.
type info struct {
	number map[string]float64
	text   map[string]string
}

func parseInfo(text string) info {
	i := info{map[string]float64{}, map[string]string{}}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), ":")
		if !found {
			continue
		}
		i.text[name] = value
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			i.number[name] = n
		}
	}
	return i
}

// full is the share of maxmemory that is in use, 0 without a limit.
func (i info) full() float64 {
	if i.number["maxmemory"] == 0 {
		return 0
	}
	return i.number["used_memory"] / i.number["maxmemory"]
}

// data is the memory without the buffers of connections, replicas and the log, which come and go.
func (i info) data() known {
	used, ok := i.number["used_memory"]
	for _, buffer := range []string{"mem_clients_normal", "mem_clients_slaves", "mem_aof_buffer",
		"mem_replication_backlog"} {
		used -= i.number[buffer]
	}
	return known{used, ok}
}

// cpu is seconds of processor.
func (i info) cpu() known {
	user, ok := i.number["used_cpu_user"]
	return known{user + i.number["used_cpu_sys"], ok}
}

func (r *onRedis) infos(ctx context.Context) (map[string]info, error) {
	infos := make(map[string]info)
	err := r.masters(ctx, func(ctx context.Context, node *redis.Client) error {
		text, err := node.Info(ctx).Result()
		infos[node.Options().Addr] = parseInfo(text)
		return err
	})
	return infos, err
}

// sample looks twice: what has changed in between, others have done.
func (r *onRedis) sample(ctx context.Context) (sample, error) {
	before, err := r.infos(ctx)
	if err != nil {
		return sample{}, err
	}
	wait(ctx, time.Now().Add(restTime))
	after, err := r.infos(ctx)
	if err != nil {
		return sample{}, err
	}
	s := sample{bytes: known{ok: true}, cpu: known{ok: true}}
	for addr, now := range after {
		old := before[addr]
		s.bytes = s.bytes.plus(now.data())
		s.cpu = s.cpu.plus(now.cpu())
		s.full = max(s.full, now.full())
		s.limit += now.number["maxmemory"]
		for _, name := range []string{"rdb_changes_since_last_save", "expired_keys",
			"evicted_keys"} {
			s.written = s.written || now.changed(old, name) != 0
		}
		// Replicas and Sentinels ask a few times a second, and so have we.
		const asked = 5
		s.busy = s.busy || now.changed(old, "total_commands_processed") > asked
	}
	return s, nil
}

func (i info) changed(before info, name string) float64 {
	return i.number[name] - before.number[name]
}

func (k known) plus(other known) known { return known{k.value + other.value, k.ok && other.ok} }
