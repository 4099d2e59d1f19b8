package resp

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Pipeline sends one command per key and checks every reply.
func (c *Conn) pipeline(ctx context.Context, keys []string, command func(key string), check func(Reply) bool) error {
	defer c.Watch(ctx)()
	for _, key := range keys {
		command(key)
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for _, key := range keys {
		r, err := c.Read()
		if err != nil {
			return err
		}
		if !check(r) {
			return fmt.Errorf("resp: %s: unexpected reply %c%d %.80q", key, r.Kind, r.Int, r.Text)
		}
	}
	return nil
}

// ClaimNew sends SET key token NX GET PX lease for every key, in one pipeline; all keys
// must be new.
func (c *Conn) ClaimNew(ctx context.Context, keys []string, token string, lease time.Duration) error {
	px := millis(lease)
	return c.pipeline(ctx, keys, func(key string) { c.Append("SET", key, token, "NX", "GET", "PX", px) },
		func(r Reply) bool { return r.Kind == Bulk && r.Null })
}

// ClaimKnown sends the same for keys that all are known.
func (c *Conn) ClaimKnown(ctx context.Context, keys []string, token string, lease time.Duration) error {
	px := millis(lease)
	return c.pipeline(ctx, keys, func(key string) { c.Append("SET", key, token, "NX", "GET", "PX", px) },
		func(r Reply) bool { return r.Kind == Bulk && !r.Null })
}

// Claim sends the same for keys of which some are known, and returns those that are new. Who has a known one
// must be done with it: what it holds is not token.
func (c *Conn) Claim(ctx context.Context, keys []string, token string, lease time.Duration) ([]string, error) {
	px, at := millis(lease), 0
	won := make([]string, 0, len(keys))
	err := c.pipeline(ctx, keys, func(key string) { c.Append("SET", key, token, "NX", "GET", "PX", px) }, func(r Reply) bool {
		if r.Kind == Bulk && r.Null {
			won = append(won, keys[at])
		}
		at++
		return r.Kind == Bulk && (r.Null || string(r.Text) != token)
	})
	return won, err
}

// Complete sends SET key value GET PX window for every key, in one pipeline; all keys must
// hold token.
func (c *Conn) Complete(ctx context.Context, keys []string, token, value string, window time.Duration) error {
	px := millis(window)
	return c.pipeline(ctx, keys, func(key string) { c.Append("SET", key, value, "GET", "PX", px) },
		func(r Reply) bool { return r.Kind == Bulk && string(r.Text) == token })
}

// MGet asks for all keys in one command; all must be known.
func (c *Conn) MGet(ctx context.Context, keys []string) error {
	defer c.Watch(ctx)()
	c.Append(append([]string{"MGET"}, keys...)...)
	if err := c.Flush(); err != nil {
		return err
	}
	head, err := c.Read()
	if err != nil {
		return err
	}
	if head.Kind != Array || head.Int != int64(len(keys)) {
		return fmt.Errorf("resp: MGET of %d keys: reply %c%d", len(keys), head.Kind, head.Int)
	}
	for _, key := range keys {
		r, err := c.Element()
		if err != nil {
			return err
		}
		if r.Kind != Bulk || r.Null {
			return fmt.Errorf("resp: MGET: %s is not known", key)
		}
	}
	return nil
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
