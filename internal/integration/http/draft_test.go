package http_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/onceward/onceward/httpadapter"
)

// draft are the clauses of draft-ietf-httpapi-idempotency-key-header-07.
func draft() []clause {
	var all []clause
	for _, part := range [][]clause{draftSyntax(), draftKeys(), draftEnforcement(), draftErrors(),
		draftSecurity()} {
		all = append(all, part...)
	}
	return all
}

const uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324"

// draftSyntax is 2.1, and what it takes over from RFC 8941 and RFC 9110.
func draftSyntax() []clause {
	strict := httpadapter.Config{Strict: true}
	refuses := func(lines ...string) func(s *site) {
		return func(s *site) {
			s.wantProblem(s.send(order(lines...)), 400, "key-malformed")
			s.wantRuns(0)
		}
	}
	same := func(one, other string) func(s *site) {
		return func(s *site) {
			first := s.send(order(one))
			s.wantFirst(first, 1)
			s.wantReplay(first, s.send(order(other)))
			s.wantRuns(1)
		}
	}
	return []clause{
		{says: "draft 1: POST and PATCH are made idempotent", check: func(s *site) {
			for i, method := range []string{http.MethodPost, http.MethodPatch} {
				o := order(key(`"k"`)).to(method, "/orders")
				first := s.send(o)
				s.wantFirst(first, i+1)
				s.wantReplay(first, s.send(o))
			}
			s.wantRuns(2)
			s.wantOrders(2)
		}},
		{says: "draft 1: methods that are idempotent pass untouched", refused: true,
			check: func(s *site) {
				for i, method := range []string{"GET", "PUT", "DELETE", "OPTIONS", "GET", "PUT"} {
					a := s.send(order(key(`"k"`)).to(method, "/orders"))
					s.wantFirst(a, i+1)
					if a.header.Get("Idempotency-Window") != "" {
						s.Errorf("%s: %v", method, a.header)
					}
				}
			}},
		{says: "draft 2.1: a key is a String", cfg: strict,
			check: same(key(`"`+uuid+`"`), key(`"`+uuid+`"`))},
		{says: "draft 2.1: the name of the field is of any case (RFC 9110 5.1)", cfg: strict,
			check: same(key(`"k"`), `iDEMPOTENCY-kEY: "k"`)},
		{says: "draft 2.1: white space around the value is none of it (RFC 9110 5.5)", cfg: strict,
			check: same(key(`"k"`), "Idempotency-Key:\t \"k\" \t")},
		{says: "draft 2.1: white space within the value is", cfg: strict, check: func(s *site) {
			s.wantFirst(s.send(order(key(`"a b"`))), 1)
			s.wantFirst(s.send(order(key(`"a  b"`))), 2)
		}},
		{says: "draft 2.1: parameters are no part of the key (RFC 8941 3.1.2)", cfg: strict,
			check: same(key(`"k"`), key(`"k";v=2;tag`))},
		{says: "draft 2.1: what is escaped is what it stands for (RFC 8941 4.2.5)",
			check: same(key(`"a/b"`), key("a/b"))},
		{says: "draft 2.1: quotes and backslashes are escaped (RFC 8941 4.2.5)", cfg: strict,
			check: same(key(`"a\"b\\c"`), key(`"a\"b\\c"`))},
		{says: "draft 2.1: a Token is no key", cfg: strict, refused: true,
			check: refuses(key("token"))},
		{says: "draft 2.1: an Integer is no key", cfg: strict, refused: true,
			check: refuses(key("12345"))},
		{says: "draft 2.1: a Boolean is no key", cfg: strict, refused: true,
			check: refuses(key("?1"))},
		{says: "draft 2.1: a Byte Sequence is no key", cfg: strict, refused: true,
			check: refuses(key(":aGVsbG8=:"))},
		{says: "draft 2.1: an Inner List is no key", cfg: strict, refused: true,
			check: refuses(key(`("a" "b")`))},
		{says: "draft 2.1: a List is no Item, in one line", refused: true,
			check: refuses(key(`"a", "b"`))},
		{says: "draft 2.1: a List is no Item, in two lines", refused: true,
			check: refuses(key(`"a"`), key(`"b"`))},
		{says: "draft 2.1: two lines are refused where they agree", refused: true,
			check: refuses(key(`"a"`), key(`"a"`))},
		{says: "draft 2.1: a key has no end", refused: true, check: refuses(key(`"a`))},
		{says: "draft 2.1: what follows a String is refused", refused: true,
			check: refuses(key(`"a"b`))},
		{says: "draft 2.1: nothing outside of ASCII is in a String", refused: true,
			check: refuses(key("\"caf\xc3\xa9\""))},
		{says: "draft 2.1: an escape of anything else is refused", refused: true,
			check: refuses(key(`"a\n"`))},
		{says: "draft 2.1: an empty field is no Item", refused: true,
			check: refuses("Idempotency-Key:")},
		{says: "draft 2.1: an empty String is refused, which names nothing", refused: true,
			check: refuses(key(`""`))},
		{says: "ours, beyond draft 2.1: unless Strict, a key without quotes is the same key",
			check: same(key(uuid), key(`"`+uuid+`"`))},
	}
}

// draftKeys is 2.2 to 2.5.
func draftKeys() []clause {
	return []clause{
		{says: "draft 2.2: two keys are two requests", check: func(s *site) {
			s.wantFirst(s.send(order(key(`"a"`))), 1)
			s.wantFirst(s.send(order(key(`"b"`))), 2)
			s.wantOrders(2)
		}},
		{says: "draft 2.2: a key is not reused with another payload", check: func(s *site) {
			s.wantFirst(s.send(order(key(`"k"`))), 1)
			s.wantProblem(s.send(order(key(`"k"`)).with(`{"amount":101}`)), 422, "key-reused")
			s.wantRuns(1)
		}},
		{says: "draft 2.2: a UUID is a key", cfg: httpadapter.Config{Strict: true},
			check: func(s *site) {
				s.wantFirst(s.send(order(key(`"`+uuid+`"`))), 1)
				// section 6
				s.wantFirst(s.send(order(key(`"clkyoesmbgybucifusbbtdsbohtyuuwz"`))), 2)
			}},
		{says: "draft 2.3: the expiry is published, in every answer", handle: holding,
			check: func(s *site) {
				first, second := s.inFlight(order(key(`"k"`)))
				for _, a := range []answer{first, second, s.send(order(key(`"k"`))),
					s.send(order(key(`"k"`)).with("x"))} {
					s.wantSeconds(a, "Idempotency-Window", 86400-3600, 86400)
				}
			}},
		{says: "draft 2.3: a key that has expired is a new one", window: shortest,
			check: func(s *site) {
				s.wantFirst(s.send(order(key(`"k"`))), 1)
				s.wantFirst(s.again(order(key(`"k"`))), 2)
				s.wantOrders(2)
			}},
		{says: "draft 2.4: the fingerprint is of the entire payload", check: func(s *site) {
			s.wantFirst(s.send(order(key(`"k"`))), 1)
			for _, other := range []request{
				order(key(`"k"`)).with(`{"amount":100} `),
				order(key(`"k"`)).with(``),
				order(key(`"k"`)).to("POST", "/orders?currency=EUR"),
				order(key(`"k"`), "Content-Type: text/plain"),
				order(key(`"k"`), "Content-Encoding: identity"),
			} {
				s.wantProblem(s.send(other), 422, "key-reused")
			}
			s.wantRuns(1)
		}},
		{says: "draft 2.4: what is no payload is not in it", check: func(s *site) {
			first := s.send(order(key(`"k"`), "User-Agent: one", "Traceparent: 00-1"))
			s.wantReplay(first, s.send(order(key(`"k"`), "User-Agent: other", "Traceparent: 00-2")))
			s.wantRuns(1)
		}},
		{says: "draft 2.4: the fingerprint may be of selected elements",
			cfg: httpadapter.Config{Canonical: compact}, check: func(s *site) {
				first := s.send(order(key(`"k"`)))
				s.wantReplay(first, s.send(order(key(`"k"`)).with(`{ "amount" : 100 }`)))
				s.wantProblem(s.send(order(key(`"k"`)).with(`{ "amount" : 101 }`)),
					422, "key-reused")
				s.wantRuns(1)
			}},
		{says: "draft 2.5.2: a key is managed by its resource", check: func(s *site) {
			s.wantFirst(s.send(order(key(`"k"`))), 1)
			s.wantFirst(s.send(order(key(`"k"`)).to("POST", "/refunds")), 2)
			s.wantFirst(s.send(order(key(`"k"`)).to("PATCH", "/orders")), 3)
		}},
		{says: "draft 2.5.2: where a key is not asked for, a request without one is handled",
			cfg: httpadapter.Config{Optional: true}, check: func(s *site) {
				for run := 1; run <= 2; run++ {
					s.wantFirst(s.send(order()), run)
				}
				first := s.send(order(key(`"k"`)))
				s.wantFirst(first, 3)
				s.wantReplay(first, s.send(order(key(`"k"`))))
			}},
	}
}

func compact(_ string, body []byte) ([]byte, error) {
	var out bytes.Buffer
	err := json.Compact(&out, body)
	return out.Bytes(), err
}

// draftEnforcement is 2.6.
func draftEnforcement() []clause {
	return []clause{
		{says: "draft 2.6: a first request is processed as ever", check: func(s *site) {
			a := s.send(order(key(`"k"`)))
			s.wantFirst(a, 1)
			if want := "run 1 of POST /orders " + order().body + "\x00"; a.body != want ||
				a.header.Get("Location") != "/orders/1" {
				s.Errorf("got %q, %v; want %q", a.body, a.header, want)
			}
			s.wantOrders(1)
		}},
		{says: "draft 2.6: a retry gets the result of the completed operation, a success",
			check: func(s *site) {
				first := s.send(order(key(`"k"`)))
				for range 3 {
					s.wantReplay(first, s.send(order(key(`"k"`))))
				}
				s.wantRuns(1)
				s.wantOrders(1)
			}},
		{says: "draft 2.6: a retry gets the result of the completed operation, an error",
			handle: answering(422, 201), check: func(s *site) {
				all := s.statuses(422, 422, 422)
				s.wantReplay(all[0], all[1])
				s.wantReplay(all[0], all[2])
				s.wantRuns(1)
			}},
		{says: "draft 2.6: a concurrent request conflicts", handle: holding, check: func(s *site) {
			first, second := s.inFlight(order(key(`"k"`)))
			s.wantFirst(first, 1)
			s.wantProblem(second, 409, "in-flight")
			s.wantOrders(1)
		}},
	}
}

// draftErrors is 2.7.
func draftErrors() []clause {
	all := []clause{
		{says: "draft 2.7: a key that is missing is 400, with a link", refused: true,
			check: func(s *site) {
				s.wantProblem(s.send(order()), 400, "key-missing")
				s.wantRuns(0)
			}},
		{says: "draft 2.7: another payload is 422, with a link", check: func(s *site) {
			first := s.send(order(key(`"k"`)))
			s.wantProblem(s.send(order(key(`"k"`)).with("x")), 422, "key-reused")
			s.wantReplay(first, s.send(order(key(`"k"`)))) // and the first is as it was
		}},
		{says: "draft 2.7: an outstanding request is 409, with a link, and says when to come again",
			handle: holding, check: func(s *site) {
				_, second := s.inFlight(order(key(`"k"`)))
				s.wantProblem(second, 409, "in-flight")
				s.wantSeconds(second, "Retry-After", 1, 1)
				if second.header.Get("Cache-Control") != "no-store" {
					s.Errorf("a passing state may be cached: %v", second.header)
				}
			}},
		{says: "draft 2.7: after 409 the same request is right", handle: holding,
			check: func(s *site) {
				first, _ := s.inFlight(order(key(`"k"`)))
				s.wantReplay(first, s.send(order(key(`"k"`))))
			}},
		{says: "draft 2.7: what is not corrected fails as before", check: func(s *site) {
			s.wantFirst(s.send(order(key(`"k"`))), 1)
			for range 3 {
				s.wantProblem(s.send(order(key(`"k"`)).with("x")), 422, "key-reused")
				s.wantProblem(s.send(order(key(`"k`))), 400, "key-malformed")
				s.wantProblem(s.send(order()), 400, "key-missing")
			}
			s.wantRuns(1)
		}},
	}
	for _, status := range []int{401, 403, 404, 408, 409, 413, 423, 429, 500, 502, 503, 504} {
		all = append(all, clause{
			says: "draft 2.7: an error that may end leaves the key free, " +
				http.StatusText(status), handle: answering(status, 201),
			check: func(s *site) {
				all := s.statuses(status, 201, 201)
				s.wantReplay(all[1], all[2])
				s.wantRuns(2)
			},
		})
	}
	return all
}

// draftSecurity is section 5.
func draftSecurity() []clause {
	format := httpadapter.Config{CheckKey: func(key string) error {
		if len(key) != len(uuid) {
			return errors.New("a key is a UUID")
		}
		return nil
	}}
	return []clause{
		{says: "draft 5: the format of a key can be fixed", cfg: format, check: func(s *site) {
			a := s.send(order(key(`"1"`)))
			s.wantProblem(a, 400, "key-malformed")
			if !strings.Contains(a.body, "a key is a UUID") {
				s.Errorf("the client is not told why: %s", a.body)
			}
			s.wantRuns(0)
			s.wantFirst(s.send(order(key(`"`+uuid+`"`))), 1)
		}},
		{says: "draft 5: a key is bounded", check: func(s *site) {
			s.wantProblem(s.send(order(key(`"`+strings.Repeat("k", 256)+`"`))),
				400, "key-malformed")
			s.wantRuns(0)
			s.wantFirst(s.send(order(key(`"`+strings.Repeat("k", 255)+`"`))), 1)
		}},
		{says: "draft 5: a key is data to every store", check: func(s *site) {
			for i, k := range []string{`'; DROP TABLE orders; --`, `%s{}*?[a-z]:/../`, `a\\b\"c`} {
				first := s.send(order(key(`"` + k + `"`)))
				s.wantFirst(first, i+1)
				s.wantReplay(first, s.send(order(key(`"`+k+`"`))))
			}
		}},
		{says: "draft 5: the key is one with whose it is", check: func(s *site) {
			for i, tenant := range []string{"acme", "umbrella", "initech"} {
				first := s.send(order(key(`"1"`)).by(tenant))
				s.wantFirst(first, i+1)
				s.wantReplay(first, s.send(order(key(`"1"`)).by(tenant)))
			}
			s.wantOrders(3)
		}},
		{says: "draft 5: nobody has no keys", refused: true, check: func(s *site) {
			s.wantProblem(s.send(order(key(`"1"`)).by("")), 401, "no-principal")
			s.wantRuns(0)
		}},
	}
}
