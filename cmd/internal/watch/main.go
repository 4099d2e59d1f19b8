package watch

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/progress"
)

// askTime bounds what all sources may take for one tick.
const askTime = 5 * time.Second

// run shows ticks until ctx ends or --for is over.
func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	w, err := open(o)
	if err != nil {
		return err
	}
	defer w.close()
	defer context.AfterFunc(ctx, w.close)() // go-redis would go on waiting for a server that hangs
	before := w.look(ctx)
	if ctx.Err() == nil && before.nothing() {
		return errors.New(strings.Join(reasons(before.failed), "; "))
	}
	ended := make(<-chan time.Time)
	if o.For > 0 {
		ended = time.After(o.For)
	}
	ticker := time.NewTicker(o.Every)
	defer ticker.Stop()
	screen := progress.OnTerminal(s.Out) && !o.JSON
	over := false
	for left := o.For / o.Every; ; left-- { // the tick that is due with the end is shown
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
			over = true
			if left <= 0 {
				return nil
			}
		case <-ticker.C:
		}
		after := w.look(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t := o.tick(before, after)
		if err := t.write(s, o, screen); err != nil {
			return err
		}
		if over {
			return nil
		}
		before = after.or(before)
	}
}

// watcher has the connections.
type watcher struct {
	o     *Options
	http  *http.Client
	redis redis.UniversalClient
	db    *sql.DB
}

func open(o *Options) (_ *watcher, err error) {
	w := &watcher{o: o, http: &http.Client{Timeout: askTime}}
	if o.Server.Redis != "" {
		if w.redis, err = o.Server.OpenRedis(); err != nil {
			return nil, err
		}
	}
	if o.Server.SQL != "" {
		if w.db, err = o.Server.OpenSQL(true); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *watcher) close() {
	w.http.CloseIdleConnections()
	if w.redis != nil {
		_ = w.redis.Close()
	}
	if w.db != nil {
		_ = w.db.Close()
	}
}

// view is what all sources said at one time.
type view struct {
	at        map[string]time.Time // of each source
	processes map[string]sample
	servers   map[string]counts
	table     counts
	failed    map[string]string
	now       time.Time
}

// nothing reports whether no source has answered.
func (v *view) nothing() bool { return len(v.at) == 0 }

// look asks all sources at the same time.
func (w *watcher) look(ctx context.Context) *view {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	v := &view{at: map[string]time.Time{}, processes: map[string]sample{},
		failed: map[string]string{}, now: time.Now()}
	var mu sync.Mutex
	var all sync.WaitGroup
	ask := func(source string, question func() (func(), error)) {
		all.Go(func() {
			keep, err := question()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				v.failed[source] = w.o.Server.Hide(w.named(source, err).Error())
				return
			}
			v.at[source] = time.Now()
			keep()
		})
	}
	for _, address := range w.o.Metrics {
		ask(shown(address), func() (func(), error) {
			s, err := scrape(ctx, w.http, address, w.o.Name)
			var wrapped *url.Error
			if errors.As(err, &wrapped) {
				err = wrapped.Err // the other words are the URL, which may have a password
			}
			return func() { v.processes[shown(address)] = s }, err
		})
	}
	if w.redis != nil {
		ask("--redis", func() (func(), error) {
			s, err := askRedis(ctx, w.redis)
			return func() { v.servers = s }, err
		})
	}
	if w.db != nil {
		ask("--sql", func() (func(), error) {
			c, err := askTable(ctx, w.db, w.o.Table)
			return func() { v.table = c }, err
		})
	}
	all.Wait()
	return v
}

// named says who has not answered; a URL is named already.
func (w *watcher) named(source string, err error) error {
	if source == "--redis" || source == "--sql" {
		return w.o.Server.Unanswered(err)
	}
	return err
}

// shown is a URL without its password.
func shown(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "a URL"
	}
	return u.Redacted()
}

// or takes from an older view what did not answer this time: the next rates are of the whole time
// since.
func (v *view) or(older *view) *view {
	for source, at := range older.at {
		if _, ok := v.at[source]; ok {
			continue
		}
		v.at[source] = at
		switch source {
		case "--redis":
			v.servers = older.servers
		case "--sql":
			v.table = older.table
		default:
			v.processes[source] = older.processes[source]
		}
	}
	return v
}

// tick compares two views.
func (o *Options) tick(before, after *view) *Tick {
	t := &Tick{At: after.now, Seconds: after.now.Sub(before.now).Seconds(), Failed: after.failed}
	since := func(source string) float64 {
		return max(after.at[source].Sub(before.at[source]).Seconds(), 0.001)
	}
	if o.Metrics != nil {
		p, ages := newProcesses(), make(map[float64]float64)
		p.Asked = len(o.Metrics)
		for source, now := range after.processes {
			p.Answered++
			p.state(now)
			if old, ok := before.processes[source]; ok {
				p.Counted++
				p.count(deltas(old, now), since(source), ages)
			}
		}
		p.AgeHalf, p.Age99 = quantile(ages, 0.5), quantile(ages, 0.99)
		t.Processes = p
	}
	if after.servers != nil && before.servers != nil {
		t.Servers = servers(before.servers, after.servers, since("--redis"))
	}
	if after.table != nil && before.table != nil {
		t.Table = tableOf(o.Table, before.table, after.table, since("--sql"))
	}
	return t
}

// reasons are those of failures, in order.
func reasons(failed map[string]string) (all []string) {
	for source, reason := range failed {
		all = append(all, source+": "+reason)
	}
	slices.Sort(all)
	return all
}

// write shows a tick: on a screen in the place of the last, as one line, or as JSON.
func (t *Tick) write(s *cli.Streams, o *Options, screen bool) error {
	if o.JSON {
		return json.NewEncoder(s.Out).Encode(t)
	}
	lines := t.lines()
	if !screen {
		_, err := fmt.Fprintln(s.Out, t.At.Format(time.TimeOnly)+"  "+strings.Join(lines, " | "))
		return err
	}
	const home, erase = "\x1b[H", "\x1b[J"
	_, err := fmt.Fprintf(s.Out, "%s%sonceward watch  %s, every %v\n\n", home,
		erase, t.At.Format(time.TimeOnly), o.Every)
	for _, line := range lines {
		err = errors.Join(err, s.Lines(4, line))
	}
	return err
}
