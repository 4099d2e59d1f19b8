package prove

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/progress"
	"github.com/onceward/onceward/internal/backoff"
)

// prove runs the whole test.
func prove(ctx context.Context, o *Options, errOut io.Writer) (*Report, error) {
	seed := o.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // moments, not secrets
	ids := make([]string, o.Messages)
	for i := range ids {
		ids[i] = fmt.Sprintf("m-%06x-%d", seed&0xffffff, i)
	}
	done := newEffects(ids)
	if o.Count != "" {
		if err := done.countable(ctx, o.Count); err != nil {
			return nil, err
		}
	}
	effectsURL, stop, err := done.serve(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	meter := progress.Start(errOut, "killing", int64(o.Kills))
	defer meter.Stop()
	p, target, err := o.prepare(ctx, effectsURL)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	s := &sender{url: target, client: &http.Client{Timeout: 15 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: o.Workers}}}
	all := order(ids, o.Duplicates, random)
	if err := o.drive(ctx, p, s, all, random, func() { meter.Add(1) }, done); err != nil {
		return nil, err
	}
	r := judge(ids, s.all, done, p.kills)
	r.Program, r.Seed = o.Program, seed
	return r, nil
}

// prepare chooses the address on which the program must listen, and passes it in the program's
// environment.
func (o *Options) prepare(ctx context.Context, effectsURL string) (p *program, target string,
	err error) {
	p = &program{args: o.Program, output: new(cli.LastOutput),
		env: []string{"EFFECTS_URL=" + effectsURL}}
	if o.Topic != "" {
		p.env = append(p.env, "KAFKA_TOPIC="+o.Topic,
			"KAFKA_BROKERS="+strings.Join(o.Kafka.Brokers, ","))
		return p, "", nil
	}
	if o.URL != "" {
		u, err := url.Parse(o.URL)
		if err != nil {
			return nil, "", err
		}
		port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		p.addr = net.JoinHostPort(u.Hostname(), port)
		return p, o.URL, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	p.addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(p.addr)
	p.env = append(p.env, "PORT="+port)
	return p, "http://" + p.addr + "/", l.Close()
}

// drive sends messages while it kills the program, and then lets the program finish.
func (o *Options) drive(ctx context.Context, p *program, s *sender, all []string,
	random *rand.Rand, killed func(), done *effects) (err error) {
	sending, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var unsent error
	during := time.Duration(o.Kills) * o.Every
	running.Go(func() {
		if o.Topic != "" {
			unsent = s.produce(sending, o, all, during)
			return
		}
		s.post(sending, all, o.Workers, during)
	})
	err = p.harass(ctx, o, random, killed)
	if err == nil {
		// the remaining messages must get through without kills
		settle := time.AfterFunc(o.Settle, cancel)
		defer settle.Stop()
	} else {
		cancel()
	}
	running.Wait()
	cancel()
	if failed := p.failed(); !errors.Is(err, failed) {
		err = errors.Join(err, failed)
	}
	if err = errors.Join(err, unsent); err == nil {
		err = o.settle(ctx, p, done)
	}
	return err
}

// afterwards is how long after the last acknowledgement or the last effect another effect may come.
const afterwards = 2 * time.Second

// settle waits for effects that come after their message was acknowledged, until none has come for
// a while. It waits longer for a program that consumes a topic, because such a program has to catch
// up.
func (o *Options) settle(ctx context.Context, p *program, done *effects) error {
	patience := afterwards
	if o.Topic != "" {
		patience = o.Settle
	}
	began := time.Now()
	for {
		if o.Count != "" {
			if err := done.counted(ctx, o.Count); err != nil {
				return err
			}
		}
		messages, last := done.state()
		quiet := min(time.Since(began), time.Since(last))
		if quiet > patience || messages == o.Messages && quiet > afterwards/2 {
			return nil
		}
		if err := backoff.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		if err := p.failed(); err != nil {
			return err
		}
	}
}
