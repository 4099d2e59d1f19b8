package http_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// shortest is a window that ends within a test, and a lease that a busy machine can keep.
const shortest = 1500 * time.Millisecond

// stripeV1 is what https://docs.stripe.com/api/idempotent_requests and
// https://docs.stripe.com/error-low-level say of version 1.
func stripeV1() []clause {
	v1 := httpadapter.Config{Keep: httpadapter.KeepStripeV1, Methods: []string{"POST"},
		Optional: true}
	all := []clause{
		{says: "Stripe v1: status and body of the first request are saved, of a success",
			cfg: v1, check: func(s *site) {
				first := s.send(order(key("KG5LxwFBepaKHyUD")))
				s.wantFirst(first, 1)
				s.wantReplay(first, s.send(order(key("KG5LxwFBepaKHyUD"))))
				s.wantOrders(1)
			}},
		{says: "Stripe v1: status and body are saved of a failure, 402", cfg: v1,
			handle: answering(402, 201), check: replays(402)},
		{says: "Stripe v1: status and body are saved of a failure, 500", cfg: v1,
			handle: answering(500, 201), check: replays(500)},
		{says: "Stripe v1: a replay says Idempotent-Replayed", cfg: v1, check: func(s *site) {
			first, again := s.send(order(key("k"))), s.send(order(key("k")))
			if first.header.Get("Idempotent-Replayed") != "" ||
				again.header.Get("Idempotent-Replayed") != "true" {
				s.Errorf("%v, then %v", first.header, again.header)
			}
		}},
		{says: "Stripe v1: keys have up to 255 characters", cfg: v1, check: func(s *site) {
			s.wantFirst(s.send(order(key(strings.Repeat("k", 255)))), 1)
			if a := s.send(order(key(strings.Repeat("k", 256)))); a.status != 400 {
				s.Errorf("256: %d %q", a.status, a.body)
			}
		}},
		{says: "Stripe v1: keys are kept for 24 hours", cfg: v1, check: func(s *site) {
			s.wantSeconds(s.send(order(key("k"))), "Idempotency-Window", 86400, 86400)
		}},
		{says: "Stripe v1: a key that was pruned makes a new request", cfg: v1, window: shortest,
			check: func(s *site) {
				s.wantFirst(s.send(order(key("k"))), 1)
				s.wantFirst(s.again(order(key("k"))), 2)
			}},
		{says: "Stripe v1: other parameters are an error", cfg: v1, check: func(s *site) {
			s.wantFirst(s.send(order(key("k"))), 1)
			if a := s.send(order(key("k")).with("description=other")); a.status < 400 ||
				a.status > 499 {
				s.Errorf("%d %q", a.status, a.body)
			}
			s.wantRuns(1)
		}},
		{says: "Stripe v1: a request that conflicts with a concurrent one saves nothing",
			cfg: v1, handle: holding, check: func(s *site) {
				first, second := s.inFlight(order(key("k")))
				s.wantProblem(second, 409, "in-flight")
				s.wantReplay(first, s.send(order(key("k"))))
			}},
		{says: "Stripe v1: POST accepts keys, and needs none", cfg: v1, refused: true,
			check: func(s *site) {
				s.wantFirst(s.send(order()), 1)
				s.wantFirst(s.send(order()), 2)
			}},
		{says: "Stripe v1: a key has no effect on GET and DELETE", cfg: v1, refused: true,
			check: func(s *site) {
				for i, method := range []string{"GET", "GET", "DELETE", "DELETE"} {
					s.wantFirst(s.send(order(key("k")).to(method, "/orders")), i+1)
				}
			}},
	}
	for _, status := range []int{400, 401, 403, 404, 409, 429} {
		all = append(all, clause{
			says: "Stripe v1: what fails before the endpoint begins saves nothing, " +
				http.StatusText(status), cfg: v1,
			handle: answering(status, 201),
			check: func(s *site) {
				all := s.statuses(status, 201, 201)
				s.wantReplay(all[1], all[2])
				s.wantRuns(2)
			},
		})
	}
	return all
}

func replays(status int) func(s *site) {
	return func(s *site) {
		all := s.statuses(status, status, status)
		s.wantReplay(all[0], all[1])
		s.wantReplay(all[0], all[2])
		s.wantRuns(1)
	}
}

// stripeV2 is what https://docs.stripe.com/api-v2-overview says of idempotency. A runner that
// undoes a failed run leaves nothing that a retry could continue from: New refuses it.
func stripeV2(inTransaction bool) []clause {
	v2 := httpadapter.Config{Keep: httpadapter.KeepStripeV2, Methods: []string{"POST", "DELETE"}}
	if inTransaction {
		return []clause{{says: "Stripe v2: is refused where a failure is undone",
			check: func(s *site) {
				var input *dedup.InputError
				if _, err := httpadapter.New(s.fixture.run, account, v2); !errors.As(err, &input) {
					s.Errorf("New: %v", err)
				}
			}}}
	}
	return []clause{
		{says: "Stripe v2: a success is not repeated", cfg: v2, check: func(s *site) {
			first := s.send(order(key(uuid)))
			s.wantFirst(first, 1)
			s.wantReplay(first, s.send(order(key(uuid))))
			s.wantOrders(1)
		}},
		{says: "Stripe v2: DELETE accepts keys", cfg: v2, check: func(s *site) {
			first := s.send(order(key(uuid)).to("DELETE", "/orders/1"))
			s.wantFirst(first, 1)
			s.wantReplay(first, s.send(order(key(uuid)).to("DELETE", "/orders/1")))
		}},
		{says: "Stripe v2: a failure is retried, and the answer is a new one",
			cfg: v2, handle: answering(500, 402, 201), check: func(s *site) {
				all := s.statuses(500, 402, 201, 201)
				s.wantReplay(all[2], all[3])
				s.wantRuns(3)
			}},
		{says: "Stripe v2: work that is partly done is completed", cfg: v2, handle: inTwoSteps,
			check: func(s *site) {
				all := s.statuses(500, 201, 201)
				s.wantReplay(all[1], all[2])
				s.wantRuns(2)
				s.wantOrders(1)
			}},
		{says: "Stripe v2: keys are kept for 30 days", cfg: v2, window: 30 * day,
			check: func(s *site) {
				s.wantSeconds(s.send(order(key(uuid))), "Idempotency-Window", 30*86400, 30*86400)
			}},
	}
}

// inTwoSteps books, and fails the first time. Its retry continues.
func inTwoSteps(s *site) http.HandlerFunc {
	var failed atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) {
		_, err := dedup.Step(r.Context(), "book", func(ctx context.Context) (bool, error) {
			return true, s.fixture.ledger.book(ctx, s.name)
		})
		if err != nil {
			s.Error(err)
		}
		if failed.CompareAndSwap(false, true) {
			http.Error(w, "the second step fails", http.StatusInternalServerError)
			return
		}
		s.created(w, r)
	}
}
