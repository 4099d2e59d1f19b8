// Command consumer consumes a topic. It keeps claims and records in Redis, and has its effect at
// another service.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
	"github.com/onceward/onceward/redisadapter"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("TEST_REDIS")})
	store, err := redisadapter.New(context.Background(), client, redisadapter.Options{
		Prefix: os.Getenv("TEST_PREFIX"), OnFinding: func(preflight.Finding) {}})
	check(err)
	d, err := dedup.New(store, dedup.Config{Namespace: "payments", Window: time.Hour,
		LeaseTTL: 3 * time.Second})
	check(err)
	c := sarama.NewConfig()
	c.Consumer.Group.Session.Timeout = 3 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	c.Consumer.Group.Rebalance.Timeout = 8 * time.Second
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	check(kafkasarama.Consume(context.Background(), strings.Split(os.Getenv("KAFKA_BROKERS"), ","),
		os.Getenv("KAFKA_TOPIC"), []string{os.Getenv("KAFKA_TOPIC")}, c,
		kafkaadapter.Config{Deduper: d, Handler: pay,
			Tuning: kafkaadapter.Tuning{Drain: time.Second}}))
}

func pay(ctx context.Context, m *kafkaadapter.Message) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		os.Getenv("EFFECTS_URL")+"?id="+url.QueryEscape(m.ID), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return errors.Join(err, resp.Body.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
