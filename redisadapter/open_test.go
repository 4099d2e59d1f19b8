package redisadapter_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

func TestNewRefusesBadInput(t *testing.T) {
	mini, good := redistest.Mini(t)
	for name, c := range map[string]struct {
		client redis.UniversalClient
		prefix string
		field  string
	}{
		"nil client":        {nil, "", "Client"},
		"typed nil":         {(*redis.Client)(nil), "", "Client"},
		"typed nil cluster": {(*redis.ClusterClient)(nil), "", "Client"},
		"ring":              {redis.NewRing(&redis.RingOptions{}), "", "Client"},
		"wrapped ring": {struct{ redis.UniversalClient }{redis.NewRing(&redis.RingOptions{})},
			"", "Client"},
		"braces":      {good, "a{b}", "Options.Prefix"},
		"colon":       {good, "a:b", "Options.Prefix"},
		"long prefix": {good, strings.Repeat("x", 65), "Options.Prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := redisadapter.New(t.Context(), c.client,
				redisadapter.Options{Prefix: c.prefix})
			wantInput(t, err, c.field)
		})
	}
	var none context.Context
	_, err := redisadapter.New(none, good, redisadapter.Options{})
	wantInput(t, err, "Context")
	keys := mini.Keys()
	assert.Empty(t, keys, "New has left %v", keys)
}

func wantInput(t *testing.T, err error, field string) {
	t.Helper()
	var input *dedup.InputError
	require.ErrorAs(t, err, &input, "want an InputError of %s", field)
	assert.Equal(t, field, input.Field, "%v", err)
}

// TestNewSaysWhatAnAddressIs: a URL, and a host without its port, are what a newcomer writes first.
func TestNewSaysWhatAnAddressIs(t *testing.T) {
	for _, addr := range []string{"redis://127.0.0.1:6379", "127.0.0.1"} {
		client := redistest.Client(t, &redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
		_, err := redisadapter.New(t.Context(), client, redisadapter.Options{})
		assert.ErrorContains(t, err, "Redis at "+addr+" cannot be reached (Addr must be host:port")
	}
}

// TestNewSaysThatAPasswordIsMissing: the server answers, so its address is right.
func TestNewSaysThatAPasswordIsMissing(t *testing.T) {
	mini, _ := redistest.Mini(t)
	mini.RequireUserAuth("app", "secret")
	for _, password := range []string{"", "wrong"} {
		client := redistest.Client(t, &redis.Options{Addr: mini.Addr(), Username: "app",
			Password: password, MaxRetries: -1, DialerRetries: 1})
		_, err := redisadapter.New(t.Context(), client, redisadapter.Options{})
		assert.ErrorContains(t, err,
			"Redis at "+mini.Addr()+" refuses this client (set Username and Password")
	}
}

// closedPort returns an address at which no server listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()
}

// TestNewUnreachable names the address and keeps the cause.
func TestNewUnreachable(t *testing.T) {
	addr := closedPort(t)
	single := redistest.Client(t, &redis.Options{Addr: addr, DialerRetries: 1})
	cluster := redistest.Cluster(t, []string{addr})
	for name, client := range map[string]redis.UniversalClient{"single": single,
		"cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := redisadapter.New(ctx, client, redisadapter.Options{})
			var dial *net.OpError
			require.Error(t, err)
			require.Contains(t, err.Error(), addr, "error %v", err)
			require.ErrorAs(t, err, &dial)
			c := redisadapter.Classify(err)
			assert.Equal(t, "network", c, "class %s", c)
		})
	}
}

// TestNewDoesNotOutlastItsContext: the server accepts connections and never answers.
func TestNewDoesNotOutlastItsContext(t *testing.T) {
	asked := make(chan struct{}, 10)
	opts := redistest.Fake(t, func([]string) string {
		asked <- struct{}{}
		<-t.Context().Done()
		return ""
	})
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(gone)
	}()
	_, err := redisadapter.New(ctx, redistest.Client(t, opts), redisadapter.Options{})
	require.ErrorIs(t, err, gone)
	assert.Contains(t, err.Error(), opts.Addr, "error %v", err)
}

// info is the raw reply to INFO.
func info(version string) string {
	text := "# Server\r\nredis_version:" + version + "\r\nvalkey_version:8.1.0\r\n"
	return redistest.Bulk(text)
}

func TestNewLooksAtTheServer(t *testing.T) {
	absent := redistest.Answer("absent", 0, 0, "")
	for name, c := range map[string]struct {
		ping, info, script string
		want               string // part of the error; empty for none
	}{
		"redis 7":  {"+PONG\r\n", info("7.0.0"), absent, ""},
		"redis 10": {"+PONG\r\n", info("10.2.1"), absent, ""},
		"embedded": {"+PONG\r\n", "-section (server) is not supported\r\n", absent, ""},
		"redis 6": {"+PONG\r\n", info("6.2.14"), absent,
			`has version "6.2.14"; 7.0 or newer is needed`},
		"odd version": {"+PONG\r\n", info("seven"), absent, "7.0 or newer is needed"},
		"single client": {"+PONG\r\n",
			redistest.Bulk("redis_version:7.0.0\r\nredis_mode:cluster\r\n"), absent,
			"needs a redis.ClusterClient"},
		"no version": {"+PONG\r\n", "$0\r\n\r\n", absent, ""},
		"too old to say": {"+PONG\r\n", "$0\r\n\r\n",
			"-ERR Error compiling script: unexpected symbol near '#'\r\n", "cannot run scripts"},
		"loading": {"-LOADING Redis is loading the dataset in memory\r\n", "", "",
			"LOADING"},
		"no password": {"-NOAUTH Authentication required.\r\n", "", "", "NOAUTH"},
		"INFO denied": {"+PONG\r\n",
			"-NOPERM this user has no permissions to run the 'info' command\r\n", absent, ""},
		"INFO unknown": {"+PONG\r\n", "-ERR unknown command 'info'\r\n", absent, ""},
		"scripts denied": {"+PONG\r\n", info("7.0.0"), "-NOPERM this user has no permissions\r\n",
			`cannot run scripts on keys "ow:*"`},
		"no such commands": {"+PONG\r\n", info("7.0.0"), "-ERR unknown command 'evalsha'\r\n",
			"unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := redistest.Fake(t, func(args []string) string {
				switch strings.ToUpper(args[0]) {
				case "PING":
					return c.ping
				case "INFO":
					return c.info
				}
				return c.script
			})
			_, err := redisadapter.New(t.Context(), redistest.Client(t, opts),
				redisadapter.Options{})
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), opts.Addr)):
				t.Errorf("error %v, want %q and the address", err, c.want)
			}
		})
	}
}
