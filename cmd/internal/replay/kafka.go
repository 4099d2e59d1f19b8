package replay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/onceward/onceward/kafkaadapter"
)

// maxMessage leaves the size of a message to the brokers: what came from a topic should
// fit into it again.
const maxMessage = 64 << 20

// kafkaConfig is that of all connections to Kafka.
func kafkaConfig(o Options) (*sarama.Config, error) {
	c := sarama.NewConfig()
	c.ClientID = "onceward-replay"
	c.Version = sarama.V2_8_0_0
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = 10*time.Second, 10*time.Second, 10*time.Second
	c.Metadata.AllowAutoTopicCreation = false // a letter of a topic that is gone must not bring it back
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.MaxMessageBytes = maxMessage
	c.Producer.Partitioner = newHomePartitioner
	if o.TLS.On {
		var err error
		if c.Net.TLS.Config, err = tlsConfig(o.TLS); err != nil {
			return nil, err
		}
		c.Net.TLS.Enable = true
	}
	if o.SASL.User != "" {
		authenticate(c, o.SASL)
	}
	return c, kafkaadapter.CheckProducer(c)
}

func tlsConfig(t TLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("-tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("-tls-ca: %s has no PEM certificate", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("-tls-cert and -tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func authenticate(c *sarama.Config, s SASL) {
	c.Net.SASL.Enable = true
	c.Net.SASL.User, c.Net.SASL.Password = s.User, s.Password
	auth := scram.Auth{User: s.User, Pass: s.Password}
	var mechanism sasl.Mechanism
	switch s.Mechanism {
	case "plain":
		c.Net.SASL.Mechanism = sarama.SASLTypePlaintext
		return
	case "scram-sha-256":
		c.Net.SASL.Mechanism, mechanism = sarama.SASLTypeSCRAMSHA256, auth.AsSha256Mechanism()
	default:
		c.Net.SASL.Mechanism, mechanism = sarama.SASLTypeSCRAMSHA512, auth.AsSha512Mechanism()
	}
	c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{mechanism: mechanism} }
}

// scramClient is a sarama.SCRAMClient: sarama has the messages of SASL, and leaves what
// stands in them to its users.
type scramClient struct {
	mechanism sasl.Mechanism
	session   sasl.Session
	first     []byte // until it has been sent
	done      bool
}

// Begin implements sarama.SCRAMClient; the mechanism has the credentials.
func (c *scramClient) Begin(string, string, string) (err error) {
	c.session, c.first, err = c.mechanism.Authenticate(context.Background(), "")
	return err
}

// Step implements sarama.SCRAMClient.
func (c *scramClient) Step(challenge string) (response string, err error) {
	if c.first != nil {
		response, c.first = string(c.first), nil
		return response, nil
	}
	var out []byte
	c.done, out, err = c.session.Challenge([]byte(challenge))
	return string(out), err
}

// Done implements sarama.SCRAMClient.
func (c *scramClient) Done() bool { return c.done }

// homePartitioner sends a message to the partition it came from, where what is left of its
// key still goes, whoever's hash chose it; and by its key when there is no such partition.
type homePartitioner struct{ hash sarama.Partitioner }

func newHomePartitioner(topic string) sarama.Partitioner {
	return homePartitioner{sarama.NewHashPartitioner(topic)}
}

// Partition implements sarama.Partitioner.
func (p homePartitioner) Partition(m *sarama.ProducerMessage, n int32) (int32, error) {
	for _, h := range m.Headers {
		if string(h.Key) != kafkaadapter.HeaderPartition {
			continue
		}
		if home, err := strconv.ParseInt(string(h.Value), 10, 32); err == nil && home >= 0 && home < int64(n) {
			return int32(home), nil // below n
		}
	}
	return p.hash.Partition(m, n)
}

// RequiresConsistency implements sarama.Partitioner: a partition that is down is waited for.
func (p homePartitioner) RequiresConsistency() bool { return true }

// kafka are the connections to Kafka.
type kafka struct {
	client   sarama.Client
	admin    sarama.ClusterAdmin
	consumer sarama.Consumer
	producer sarama.SyncProducer // nil in a dry run
}

// openKafka connects.
func openKafka(o Options) (_ *kafka, err error) {
	c, err := kafkaConfig(o)
	if err != nil {
		return nil, err
	}
	k := &kafka{}
	defer func() {
		if err != nil {
			k.close()
			err = fmt.Errorf("-brokers: %w", err)
		}
	}()
	if k.client, err = sarama.NewClient(o.Brokers, c); err != nil {
		return nil, err
	}
	if k.admin, err = sarama.NewClusterAdminFromClient(k.client); err != nil {
		return nil, err
	}
	if k.consumer, err = sarama.NewConsumerFromClient(k.client); err != nil {
		return nil, err
	}
	if o.DryRun {
		return k, nil
	}
	k.producer, err = sarama.NewSyncProducerFromClient(k.client)
	return k, err
}

// close ends the connections: everything that was sent has been answered.
func (k *kafka) close() {
	if k.producer != nil {
		_ = k.producer.Close()
	}
	if k.consumer != nil {
		_ = k.consumer.Close()
	}
	if k.client != nil {
		_ = k.client.Close() // the admin's, too
	}
}

// hasTopic asks whether a message can be sent there at all.
func (k *kafka) hasTopic(topic string) (bool, error) {
	partitions, err := k.client.Partitions(topic)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, sarama.ErrInvalidTopic) {
		return false, nil
	}
	return len(partitions) > 0, err
}
