package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

const payChild = "ONCEWARD_TEST_PAY_CHILD"

// bank is a downstream that keeps a ledger by idempotency key, as payment services do: in
// the same Redis, and unknown to the Deduper.
type bank struct {
	client *redis.Client
	prefix string
}

func (b *bank) ledger() string { return b.prefix + ":ledger" }

func (b *bank) pay(ctx context.Context) (string, error) {
	a, _ := dedup.FromContext(ctx)
	err := b.client.HIncrBy(ctx, b.ledger(), a.DownstreamKey("bank"), 1).Err()
	return "paid", err
}

// resolve asks the bank.
func (b *bank) resolve(ctx context.Context, _ string, _ dedup.Record) (dedup.Resolution, error) {
	a, _ := dedup.FromContext(ctx)
	n, err := b.client.HGet(ctx, b.ledger(), a.DownstreamKey("bank")).Int()
	switch {
	case errors.Is(err, redis.Nil):
		return dedup.DidNotHappen(), nil
	case err != nil:
		return dedup.Resolution{}, err
	}
	return dedup.Happened(fmt.Appendf(nil, "paid %d", n)), nil
}

func (b *bank) open(t *testing.T, resolve bool) *dedup.Deduper {
	t.Helper()
	store, err := redisadapter.New(t.Context(), b.client, redisadapter.Options{Prefix: b.prefix})
	require.NoError(t, err)
	cfg := dedup.Config{Namespace: "pay", Window: time.Hour, LeaseTTL: 500 * time.Millisecond,
		Wait: 20 * time.Second}
	if resolve {
		cfg.Resolve = b.resolve
	}
	d, err := dedup.New(store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close(context.Background())) })
	return d
}

// TestKilledAfterMarkIrreversible: a process that dies by SIGKILL after MarkIrreversible, before or
// after its payment, leaves a key that runs again only after the bank was asked. Every payment is
// made once.
func TestKilledAfterMarkIrreversible(t *testing.T) {
	if task := os.Getenv(payChild); task != "" {
		payAndHang(t, task)
		return
	}
	addr := servertest.Redis(t)
	for when, want := range map[string]driver.Outcome{"before": dedup.Acquired,
		"after": dedup.Duplicate} {
		t.Run(when+" the payment", func(t *testing.T) {
			b := &bank{client: single(t, &redis.Options{Addr: addr}), prefix: servertest.Prefix(t)}
			killPayer(t, fmt.Sprintf("%s\n%s\n%s", addr, b.prefix, when))

			mustNotRun := func(context.Context) (string, error) {
				t.Error("an uncertain key was run")
				return "", nil
			}
			for range 2 {
				_, err := dedup.Do(t.Context(), b.open(t, false), "order-1", mustNotRun)
				require.ErrorIs(t, err, dedup.ErrUncertain, "nobody asks")
			}
			res, err := dedup.DoResult(t.Context(), b.open(t, true), "order-1",
				func(ctx context.Context) (string, error) {
					if err := dedup.MarkIrreversible(ctx); err != nil {
						return "", dedup.NotStarted(err)
					}
					return b.pay(ctx)
				})
			assert.NoError(t, err, "the bank was asked: %+v", res)
			assert.Equal(t, want, res.Outcome, "the bank was asked: %+v", res)
			assert.Equal(t, 2, res.Attempt, "the bank was asked: %+v", res)
			ledger, err := b.client.HGetAll(t.Context(), b.ledger()).Result()
			require.NoError(t, err)
			assert.Len(t, ledger, 1, "payments")
			for _, n := range ledger {
				assert.Equal(t, "1", n, "payments")
			}
			require.NoError(t, b.client.Del(t.Context(), b.ledger()).Err())
		})
	}
}

// killPayer runs this test in a child process and kills it when it says it is ready.
func killPayer(t *testing.T, task string) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledAfterMarkIrreversible$")
	child.Env = append(os.Environ(), payChild+"="+task)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // always an error: it was killed
	require.NoError(t, err, "the child")
	require.Equal(t, "ready\n", line, "the child")
}

// payAndHang is the other side of killPayer: it never returns by itself.
func payAndHang(t *testing.T, task string) {
	var addr, prefix, when string
	_, err := fmt.Sscanf(task, "%s\n%s\n%s", &addr, &prefix, &when)
	require.NoError(t, err)
	b := &bank{client: single(t, &redis.Options{Addr: addr}), prefix: prefix}
	_, err = dedup.Do(t.Context(), b.open(t, false),
		"order-1", func(ctx context.Context) (string, error) {
			if err := dedup.MarkIrreversible(ctx); err != nil {
				return "", err
			}
			if when == "after" {
				if _, err := b.pay(ctx); err != nil {
					return "", err
				}
			}
			fmt.Println("ready")
			<-context.Background().Done() // the parent's SIGKILL ends it
			return "", nil
		})
	t.Fatalf("child: %v", err)
}
