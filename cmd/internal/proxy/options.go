package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/loopback"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// Options are the settings of the command, from flags and from the file of --config.
type Options struct {
	Server            server.Options
	Prefix, Namespace string
	Config            string
	Check             bool
	Listen, Admin     string
	AdminRemote       bool
	Upstream          string
	// Principal says how the proxy recognizes a client.
	Principal            Principal
	SameHost             string
	Window, Lease, Wait  time.Duration
	Timeout, ReadTimeout time.Duration
	DrainDelay, Grace    time.Duration
	Optional             bool
	TrustForwarded       bool
	Cert, Key            string
	// Routes and Webhooks can only be set in the file.
	Routes   []Route
	Webhooks []Hook

	given  *cli.Flags
	target *url.URL
}

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "proxy", Short: "Serve as a reverse proxy: each key and each webhook reaches a service once",
		Long: `Serves as a reverse proxy in front of one service, in any language. A request with an
Idempotency-Key has its effect at the service once, and its retries get the first answer; a verified
webhook reaches the service once. --jwt-claim or --unscoped may replace --principal-header. Each flag
may also stand in the file of --config, which has the routes and webhooks, too; a flag overrides the
file, and the file overrides the environment. docs/guides/proxy.md has an example.

SIGHUP reads the files of --tls-cert and --tls-key again. SIGTERM and SIGINT end the command when the
requests under way have ended.`,
		Example: "onceward proxy --redis redis://localhost:6379 --upstream http://localhost:8000 " +
			"--principal-header X-Account",
		Exits: map[int]string{
			cli.Done:        "it was told to end and all requests had ended, or --check found nothing",
			cli.No:          "requests were cut off at the end of --grace",
			cli.Usage:       "wrong settings, a server that cannot be reached or refuses, or an address that is taken",
			cli.Interrupted: "interrupted before it served",
		},
		Flags: o.flags,
		Check: o.check,
		Run:   o.run,
		Hide:  o.Server.Hide,
	}
}

func (o *Options) flags(f *cli.Flags) {
	o.given = f
	o.Server.RedisFlags(f)
	f.StringVar(&o.Config, "config", "", "`file` of settings, YAML or JSON")
	f.BoolVar(&o.Check, "check", false, "check the settings and end; connects to nothing")
	f.StringVar(&o.Prefix, "prefix", redisadapter.DefaultPrefix, "`prefix` of the keys in Redis")
	f.StringVar(&o.Namespace, "namespace", "proxy",
		"`namespace` of the keys: one for each service behind the same Redis")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "`host:port` that clients connect to")
	f.StringVar(&o.Admin, "admin", "127.0.0.1:9900",
		"`host:port` of /healthz, /readyz and /metrics")
	f.BoolVar(&o.AdminRemote, "admin-remote", false,
		"allow an --admin address that other machines reach")
	f.StringVar(&o.Upstream, "upstream", "",
		"`URL` of the service, http://host:port or https://host:port")
	f.StringVar(&o.SameHost, "same-host", "",
		"one `name` for all hosts that the service answers under; default: each host has keys of its own")
	f.DurationVar(&o.Window, "window", 24*time.Hour, "how long a finished key is remembered")
	f.DurationVar(&o.Lease, "lease", 10*time.Second,
		"how long a key stays in flight after this process has crashed")
	f.DurationVar(&o.Wait, "wait", 0, "how long a request waits for a key in flight before 409")
	f.DurationVar(&o.Timeout, "timeout", time.Minute,
		"how long the service may take for a request with a key")
	f.DurationVar(&o.ReadTimeout, "read-timeout", time.Minute,
		"how long a client may take to send a request")
	f.DurationVar(&o.DrainDelay, "drain-delay", 0,
		"at the end, how long requests are still accepted while /readyz says 503")
	f.DurationVar(&o.Grace, "grace", 30*time.Second,
		"at the end, how long requests under way may take")
	f.BoolVar(&o.Optional, "optional", false, "let requests without a key pass, on routes that do not say otherwise")
	f.BoolVar(&o.TrustForwarded, "trust-forwarded", false,
		"keep the X-Forwarded-* headers of requests: only behind a proxy that sets them")
	f.StringVar(&o.Cert, "tls-cert", "", "`file` with the certificates of this server")
	f.StringVar(&o.Key, "tls-key", "", "`file` with their key")
	o.Principal.flags(f)
}

// check finds every setting that is wrong.
func (o *Options) check([]string) error {
	if err := o.readFile(); err != nil {
		return err
	}
	var all []error
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	if o.Server.Redis == "" {
		all = append(all, errors.New("--redis is missing"))
	} else if err := o.Server.CheckRedis(); err != nil {
		all = append(all, err)
	}
	all = append(all, o.checkUpstream(), o.Principal.read())
	for name, address := range map[string]string{"listen": o.Listen, "admin": o.Admin} {
		_, _, err := net.SplitHostPort(address)
		add(err != nil, "--%s is %q, and not host:port", name, address)
	}
	add(!loopback.Is(o.Admin) && !o.AdminRemote,
		"--admin: %q is not of this machine alone: --admin-remote allows it", o.Admin)
	add((o.Cert == "") != (o.Key == ""), "--tls-cert and --tls-key need each other")
	if o.Cert != "" && o.Key != "" {
		all = append(all, (&certificates{cert: o.Cert, key: o.Key}).load())
	}
	for _, d := range []struct {
		name         string
		value, least time.Duration
	}{
		{"wait", o.Wait, 0}, {"timeout", o.Timeout, time.Millisecond},
		{"read-timeout", o.ReadTimeout, time.Millisecond}, {"drain-delay", o.DrainDelay, 0},
		{"grace", o.Grace, time.Millisecond},
	} {
		add(d.value < d.least, "--%s is %v; at least %v is needed", d.name, d.value, d.least)
	}
	all = append(all, o.checkPaths())
	if o.target != nil { // a store in memory finds errors before anything is connected
		_, err := o.build(dedup.Memory(1), slog.New(slog.DiscardHandler))
		all = append(all, err)
	}
	return errors.Join(all...)
}

// checkUpstream accepts only a scheme and a host, because a path would change the meaning of a
// webhook's signature or of a client's URL.
func (o *Options) checkUpstream() error {
	if o.Upstream == "" {
		return errors.New("--upstream is missing")
	}
	u, err := url.Parse(o.Upstream)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("--upstream is not a URL of the form http://host:port or https://host:port")
	}
	u.Path = ""
	o.target = u
	return nil
}
