package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	pair := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	a.cert = pair.Leaf
	a.key = pair.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a
}

// sign makes a certificate; the first one signs itself.
func (a *authority) sign(t *testing.T, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber, template.NotAfter = big.NewInt(time.Now().UnixNano()),
		time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// server returns the TLS configuration of a broker whose clients need a certificate of a.
func (a *authority) server(t *testing.T) *tls.Config {
	t.Helper()
	pair := a.sign(t, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: a.pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
}

// client returns the TLS configuration of a client with a certificate of a.
func (a *authority) client(t *testing.T) *tls.Config {
	t.Helper()
	pair := a.sign(t, &x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{pair},
		MinVersion: tls.VersionTLS12}
}

// scramClient makes and reads the messages of SCRAM, which sarama leaves to its users.
type scramClient struct {
	mechanism sasl.Mechanism
	session   sasl.Session
	first     []byte // the first message, until it is sent
	done      bool
}

func (c *scramClient) Begin(string, string, string) (err error) {
	c.session, c.first, err = c.mechanism.Authenticate(context.Background(), "")
	return err
}

func (c *scramClient) Step(challenge string) (response string, err error) {
	if c.first != nil {
		response, c.first = string(c.first), nil
		return response, nil
	}
	var out []byte
	c.done, out, err = c.session.Challenge([]byte(challenge))
	return string(out), err
}

func (c *scramClient) Done() bool { return c.done }

const rightPassword = "correct horse"

// security is a way to connect.
type security struct {
	name   string
	broker func(*testing.T, *authority) []kfake.Opt
	client func(t *testing.T, a *authority, c *sarama.Config, password string)
}

// saslOptions returns the options of a broker with one user.
func saslOptions(mechanism string) func(*testing.T, *authority) []kfake.Opt {
	return func(*testing.T, *authority) []kfake.Opt {
		return []kfake.Opt{kfake.EnableSASL(), kfake.Superuser(mechanism, "billing", rightPassword)}
	}
}

func login(c *sarama.Config, mechanism sarama.SASLMechanism, password string) {
	c.Net.SASL.Enable, c.Net.SASL.Mechanism = true, mechanism
	c.Net.SASL.User, c.Net.SASL.Password = "billing", password
	auth := scram.Auth{User: "billing", Pass: password}
	c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
		if mechanism == sarama.SASLTypeSCRAMSHA256 {
			return &scramClient{mechanism: auth.AsSha256Mechanism()}
		}
		return &scramClient{mechanism: auth.AsSha512Mechanism()}
	}
}

var securities = []security{
	{"plain", saslOptions("PLAIN"),
		func(_ *testing.T, _ *authority, c *sarama.Config, password string) {
			login(c, sarama.SASLTypePlaintext, password)
		}},
	{"scram-sha-256", saslOptions("SCRAM-SHA-256"),
		func(_ *testing.T, _ *authority, c *sarama.Config, password string) {
			login(c, sarama.SASLTypeSCRAMSHA256, password)
		}},
	{"scram-sha-512 over mutual TLS", func(t *testing.T, a *authority) []kfake.Opt {
		t.Helper()
		return append(saslOptions("SCRAM-SHA-512")(t, a), kfake.TLS(a.server(t)))
	}, func(t *testing.T, a *authority, c *sarama.Config, password string) {
		t.Helper()
		login(c, sarama.SASLTypeSCRAMSHA512, password)
		c.Net.TLS.Enable, c.Net.TLS.Config = true, a.client(t)
	}},
}

// secured is a broker that requires authentication, and how its clients are configured.
type secured struct {
	cluster *kfake.Cluster
	config  func(password string) *sarama.Config
}

func (s security) start(t *testing.T) *secured {
	t.Helper()
	a := newAuthority(t)
	cluster := embeddedNodes(t, 1,
		append(s.broker(t, a), kfake.SeedTopics(1, sceneTopic, sceneTopic+".dead"))...)
	return &secured{cluster, func(password string) *sarama.Config {
		c := clientConfig()
		c.ClientID, c.RackID = "billing", "eu-1a"
		s.client(t, a, c, password)
		return c
	}}
}

func (s *secured) open(t *testing.T) sarama.Client {
	t.Helper()
	client, err := sarama.NewClient(s.cluster.ListenAddrs(), s.config(rightPassword))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (s *secured) producer(t *testing.T) sarama.SyncProducer {
	t.Helper()
	p, err := sarama.NewSyncProducerFromClient(s.open(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// reports collects what a consumer has done on a broker that requires authentication.
type reports struct {
	mu      sync.Mutex
	effects map[string]int
	parked  int
	commits int64
	errs    []error
}

func (r *reports) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// consumer makes a consumer that sends dead letters and commits over clients of this configuration,
// and counts them and its effects in r.
func (s *secured) consumer(t *testing.T, r *reports) *kafkasarama.Consumer {
	t.Helper()
	letters, err := kafkasarama.Producer(s.producer(t))
	require.NoError(t, err)
	d, err := dedup.New(dedup.Memory(1000),
		dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Second})
	require.NoError(t, err)
	c, err := kafkasarama.New(s.open(t), sceneGroup, kafkaadapter.Config{
		Deduper: d, Park: deadLetters(t, letters, sceneTopic+".dead"),
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond},
		Tuning:   kafkaadapter.Tuning{Drain: time.Second, CommitEvery: 20 * time.Millisecond},
		Handler: func(_ context.Context, m *kafkaadapter.Message) error {
			if m.ID == idOf(0) {
				return dedup.Permanent(errors.New("cannot be charged"))
			}
			r.note(func() { r.effects[m.ID]++ })
			return nil
		},
		Observer: kafkaadapter.Observer{
			Parked:     func(*kafkaadapter.Message, error) { r.note(func() { r.parked++ }) },
			Committed:  func(_ string, _ int32, next int64) { r.note(func() { r.commits = next }) },
			GroupError: func(err error) { r.note(func() { r.errs = append(r.errs, err) }) },
		},
	})
	require.NoError(t, err)
	return c
}

// Consumer, dead letters and commits go through SASL and TLS as sarama is configured.
func TestSASLAndTLS(t *testing.T) {
	for _, row := range securities {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := row.start(t)
			p := s.producer(t)
			const n = 50
			for _, rec := range append(numbered(0, 0, n), numbered(0, 0, n)...) {
				_, _, err := p.SendMessage(rec.message(sceneTopic))
				require.NoError(t, err)
			}
			r := &reports{effects: map[string]int{}}
			c, config := s.consumer(t, r), s.config(rightPassword)
			require.NoError(t, c.CheckConfig(config))
			group, err := sarama.NewConsumerGroup(s.cluster.ListenAddrs(), sceneGroup, config)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx, group, []string{sceneTopic}) }()
			eventually(t, 15*time.Second, func() (done bool, state string) {
				r.note(func() {
					done, state = r.commits == 2*n,
						fmt.Sprintf("%d are committed; %v", r.commits, r.errs)
				})
				return done, state
			})
			members := s.cluster.GroupInfo(sceneGroup).Members
			require.Len(t, members, 1)
			assert.Equal(t, "billing", members[0].ClientID)
			cancel()
			assert.NoError(t, errors.Join(<-ended, group.Close()))
			r.wantOnce(t, n)
		})
	}
}

// wantOnce wants the effects of all ids but the first, whose message is parked.
func (r *reports) wantOnce(t *testing.T, n int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Len(t, r.effects, n-1, "ids that had effects")
	assert.Equal(t, 1, r.parked, "letters")
	for id, times := range r.effects {
		assert.Equal(t, 1, times, "effects of %s", id)
	}
}

// refusePasswords makes the broker refuse all passwords with Kafka's error. Without it the embedded
// broker only hangs up on a wrong one.
func (s *secured) refusePasswords() *kfake.FaultHandle {
	return s.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate},
		Err: kerr.SaslAuthenticationFailed, Count: -1})
}

// A wrong password is an error before there is a group to run.
func TestWrongPasswordMakesNoGroup(t *testing.T) {
	for _, row := range securities {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := row.start(t)
			c := s.config("wrong")
			c.Metadata.Retry.Max = 0
			for _, want := range []error{io.EOF, sarama.ErrSASLAuthenticationFailed} {
				group, err := sarama.NewConsumerGroup(s.cluster.ListenAddrs(), sceneGroup, c)
				if err == nil {
					_ = group.Close()
					t.Fatal("there is a group")
				}
				assert.ErrorIs(t, err, want)
				s.refusePasswords()
			}
		})
	}
}

// GroupError gets every refusal of a password while the group is there, and Run continues when the
// password is accepted.
func TestPasswordRefusedWhileRunning(t *testing.T) {
	t.Parallel()
	s := securities[1].start(t)
	r := &reports{effects: map[string]int{}}
	c := s.consumer(t, r)
	_, _, err := s.producer(t).SendMessage(numbered(0, 1, 1)[0].message(sceneTopic))
	require.NoError(t, err)
	group, err := sarama.NewConsumerGroup(s.cluster.ListenAddrs(), sceneGroup,
		s.config(rightPassword))
	require.NoError(t, err)
	refused := s.refusePasswords() // the group has no connection to its coordinator yet
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, group, []string{sceneTopic}) }()
	eventually(t, 15*time.Second, func() (bool, string) {
		n, state := r.failures(sarama.ErrSASLAuthenticationFailed)
		return n >= 3, state
	})
	refused.Remove()
	eventually(t, 15*time.Second, func() (done bool, state string) {
		r.note(func() { done, state = r.commits == 1, fmt.Sprint(r.errs) })
		return done, state
	})
	cancel()
	assert.NoError(t, errors.Join(<-ended, group.Close()))
}

// failures counts the errors of the group that are of this kind.
func (r *reports) failures(kind error) (n int, all string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.errs {
		if errors.Is(err, kind) {
			n++
		}
	}
	return n, fmt.Sprint(r.errs)
}

// With the longest poll that CheckConfig accepts, no member loses its place in the group, although
// its heartbeats go to the broker that holds its polls. Only a fiftieth of the session is left for
// delays of the machine. If the machine is too busy for that, the test takes a longer session.
func TestLongestPollKeepsTheMember(t *testing.T) {
	t.Parallel()
	for session := time.Second; ; session *= 2 {
		again := rejoins(t, session)
		if again == 0 {
			return
		}
		require.LessOrEqual(t, session, 8*time.Second,
			"with a session of %v it had to join %d times again", session, again)
		t.Logf("with a session of %v it had to join %d times again", session, again)
	}
}

// rejoins returns how often a member whose polls are as long as its session allows had to join
// again within five sessions.
func rejoins(t *testing.T, session time.Duration) int64 {
	t.Helper()
	s := newScene(t, 1, 1)
	var joins atomic.Int64
	s.cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		s.cluster.KeepControl()
		joins.Add(1)
		return nil, nil, false
	})
	m := s.join(nil, func(mc *memberConfig) {
		mc.session = session
		mc.client = func(c *sarama.Config) {
			c.Consumer.Group.Heartbeat.Interval, c.Consumer.MaxWaitTime = 18*session/100,
				40*session/100
		}
	})
	s.wantMembers(1)
	before := joins.Load()
	<-time.After(5 * session)
	s.produce(numbered(0, 0, 10)...)
	s.wantCommittedToEnd(5 * time.Second)
	again := joins.Load() - before
	m.leave(t)
	return again
}
