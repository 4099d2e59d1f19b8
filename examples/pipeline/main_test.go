package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/internal/servertest"
)

func TestPipeline(t *testing.T) {
	for name, brokers := range map[string]func(testing.TB) string{
		"embedded": func(testing.TB) string { return "" },
		"kafka":    func(t testing.TB) string { return strings.Join(servertest.Kafka(t), ",") },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			names := topics{orders: servertest.Prefix(t) + "-orders", bookings: servertest.Prefix(t) + "-bookings"}
			seeds, closeKafka, err := connect(brokers(t))
			if err != nil {
				t.Fatal(err)
			}
			defer closeKafka()
			s, closeShop, err := newShop(ctx, seeds, names)
			if err != nil {
				t.Fatal(err)
			}
			defer closeShop()
			const orders = 60
			sent, err := s.send(ctx, orders)
			if err != nil || sent != 2*orders {
				t.Fatalf("sent %d, %v", sent, err)
			}
			if err := s.work(ctx, orders); err != nil {
				t.Fatal(err)
			}
			if ctx.Err() != nil {
				t.Fatal("it did not come to its end")
			}
			// What was told twice, or is still to come, would be a mail more.
			booked, err := s.booked(ctx)
			if err != nil || booked != orders || s.mails != orders {
				t.Errorf("%d bookings, %d mails of %d orders; %v", booked, s.mails, orders, err)
			}
			var twice int
			if err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT order_id FROM booking GROUP BY order_id HAVING count(*) > 1)`).Scan(&twice); err != nil || twice != 0 {
				t.Errorf("%d orders are booked twice, %v", twice, err)
			}
		})
	}
}

func TestRun(t *testing.T) {
	if err := run(t.Context(), "", 10); err != nil {
		t.Error(err)
	}
}
