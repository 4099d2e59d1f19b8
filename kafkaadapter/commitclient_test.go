package kafkaadapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
)

// fakeCoordinator is the commitClient of a fakeGroup, which it commits to.
type fakeCoordinator struct {
	group  *fakeGroup
	config *sarama.Config
	more   int32 // partitions of the topic that nobody here is assigned

	mu sync.Mutex
	// of the next requests: a sarama.KError is answered, another one fails the request
	answers  []error
	forever  error // of all others
	apply    bool  // what is answered with an error is committed all the same
	requests []*sarama.OffsetCommitRequest
	lookUps  []bool

	topic fakeTopic
}

// Config implements commitClient.
func (f *fakeCoordinator) Config() *sarama.Config { return f.config }

// Count implements commitClient.
func (f *fakeCoordinator) Count(string) (int32, error) {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	return int32(len(f.group.log)) + f.more, nil
}

// Commit implements commitClient.
func (f *fakeCoordinator) Commit(r *sarama.OffsetCommitRequest,
	lookUp bool) (*sarama.OffsetCommitResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests, f.lookUps = append(f.requests, r), append(f.lookUps, lookUp)
	answer := f.forever
	if len(f.answers) > 0 {
		answer, f.answers = f.answers[0], f.answers[1:]
	}
	code, answered := answer.(sarama.KError) //nolint:errorlint // as it comes
	response := &sarama.OffsetCommitResponse{}
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	for partition := range f.group.log {
		next, metadata, err := r.Offset(topic, partition)
		if err != nil {
			continue
		}
		if answer == nil || f.apply {
			f.group.check(partition, next)
			f.group.committed[partition] = next
			f.topic.stamp(partition, metadata)
		}
		response.AddError(topic, partition, code)
	}
	if answer != nil && !answered {
		return nil, answer
	}
	return response, nil
}

func (f *fakeCoordinator) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// toldErrors are what a hook was told.
type toldErrors struct {
	mu   sync.Mutex
	errs []error
}

func (e *toldErrors) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errs = append(e.errs, err)
}

func (e *toldErrors) all() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.errs)
}

// joined is how often the group was joined, and the session that came of it last.
func (g *fakeGroup) joined() (n int, last *fakeSession) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.joins, g.session
}

func (f *fakeCoordinator) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
}

// withCoordinator lets a rig's adapter commit over a client of its own.
func withCoordinator(r *rig, c *Config) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	r.coordinator = &fakeCoordinator{group: r.group, config: config}
	c.Group, c.CommitEvery = "g", 250*time.Millisecond
}

// What is confirmed is told, and not sent again; nothing goes over the session.
func TestCommitClientConfirms(t *testing.T) {
	var told []int64
	inBubble(t, 1, nil, func(r *rig, c *Config) {
		withCoordinator(r, c)
		c.Observer.Committed = func(_ string, _ int32, next int64) { told = append(told, next) }
		c.Observer.CommitFailed = func(_ string, _ int32, err error) { t.Errorf("failed: %v", err) }
	}, func(r *rig) {
		r.group.add(ids(3)...)
		r.after(time.Second)
		r.wantCommitted(3)
		sent := r.coordinator.sent()
		r.after(time.Hour)
		if again := r.coordinator.sent() - sent; again > 0 {
			t.Errorf("%d more commits of what was confirmed", again)
		}
		r.group.add(message("last", ""))
		r.after(time.Second)
		r.wantCommitted(4)
		r.stop()
		if err := r.wantEnd(); err != nil {
			t.Error(err)
		}
		for i, request := range r.coordinator.requests {
			if request.ConsumerGroup != "g" || request.ConsumerID != "member" ||
				request.ConsumerGroupGeneration != 1 ||
				request.GroupInstanceId != nil || r.coordinator.lookUps[i] {
				t.Errorf("%+v, looked up: %v", request, r.coordinator.lookUps[i])
			}
		}
		r.group.mu.Lock()
		defer r.group.mu.Unlock()
		if r.group.commits > 0 || r.group.marked[0] > 0 {
			t.Errorf("%d commits of the session, marked %d", r.group.commits, r.group.marked[0])
		}
	})
	if len(told) == 0 || told[len(told)-1] != 4 {
		t.Errorf("told %v, want 4 at last", told)
	}
}

// Every answer that does not fence is told, and followed by another attempt, for as long
// as it takes; the coordinator is looked up again where that may help.
func TestCommitClientRepeats(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer error
		lookUp bool
		apply  bool
	}{
		{"coordinator moved", sarama.ErrNotCoordinatorForConsumer, true, false},
		{"coordinator not available", sarama.ErrConsumerCoordinatorNotAvailable, true, false},
		{"coordinator is loading", sarama.ErrOffsetsLoadInProgress, false, false},
		{"rebalance in progress", sarama.ErrRebalanceInProgress, false, false},
		{"timed out", sarama.ErrRequestTimedOut, false, false},
		{"timed out, and applied", sarama.ErrRequestTimedOut, false, true},
		{"metadata too large", sarama.ErrOffsetMetadataTooLarge, false, false},
		{"not authorized", sarama.ErrGroupAuthorizationFailed, false, false},
		{"unknown topic", sarama.ErrUnknownTopicOrPartition, false, false},
		{"unknown code", sarama.KError(12345), false, false},
		{"connection cut", io.EOF, true, false},
		{"connection cut, and applied", io.EOF, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, times := range []int{1, 2, 1000} {
				var told []error
				var committed int
				inBubble(t, 1, nil, func(r *rig, cfg *Config) {
					withCoordinator(r, cfg)
					r.coordinator.answers, r.coordinator.apply = slices.Repeat([]error{c.answer},
						times), c.apply
					cfg.Observer.CommitFailed = func(_ string, _ int32, err error) {
						told = append(told, err)
					}
					cfg.Observer.Committed = func(string, int32, int64) { committed++ }
				}, func(r *rig) {
					r.group.add(message("last", ""))
					r.after(time.Duration(times+2) * 250 * time.Millisecond)
					r.wantCommitted(1)
					r.wantRuns("last", 1)
					if joins, _ := r.group.joined(); joins != 1 {
						t.Errorf("joined %d times", joins)
					}
					if lookUps := r.coordinator.lookUps; len(lookUps) != times+1 || lookUps[0] ||
						lookUps[1] != c.lookUp {
						t.Errorf("%d requests, want %d; looked up %v", len(lookUps), times+1,
							lookUps[:2])
					}
				})
				if len(told) != times || !errors.Is(told[0], c.answer) || committed != 1 {
					t.Errorf("%d times: told %d times, first %v; committed %d times", times,
						len(told), told[0], committed)
				}
			}
		})
	}
}

// An answer that fences ends the session at once, with the answer as the reason; the
// member joins again, and nothing is lost or doubled.
func TestCommitClientIsFenced(t *testing.T) {
	for _, code := range []sarama.KError{sarama.ErrUnknownMemberId, sarama.ErrIllegalGeneration,
		sarama.ErrFencedInstancedId} {
		t.Run(code.Error(), func(t *testing.T) {
			var told toldErrors
			inBubble(t, 2, nil, func(r *rig, c *Config) {
				withCoordinator(r, c)
				r.coordinator.answers = []error{code}
				c.Observer.GroupError = told.add
			}, func(r *rig) {
				r.group.add(message("a", ""), message("b", ""))
				r.after(249 * time.Millisecond)
				if early := told.all(); len(early) > 0 {
					t.Errorf("told %v before the commit", early)
				}
				r.after(250 * time.Millisecond)
				if errs := told.all(); len(errs) == 0 || !errors.Is(errs[0], ErrFenced) ||
					!errors.Is(errs[0], code) {
					t.Errorf("told %v", errs)
				}
				if n := r.coordinator.sent(); n != 1 {
					t.Errorf("%d commits of a session that is fenced", n)
				}
				r.after(time.Minute)
				r.wantRunning()
				r.wantCommitted(2)
				r.wantRuns("a", 1)
				r.wantRuns("b", 1)
			})
		})
	}
}

// A group that fences every commit gets none, and the effects happen once.
func TestCommitClientIsFencedForEver(t *testing.T) {
	inBubble(t, 1, nil, func(r *rig, c *Config) {
		withCoordinator(r, c)
		r.coordinator.forever = sarama.ErrUnknownMemberId
	}, func(r *rig) {
		r.group.add(ids(5)...)
		r.after(10 * time.Minute)
		r.wantCommitted(0)
		if joins, _ := r.group.joined(); joins < 5 || joins > 1500 {
			t.Errorf("joined %d times in 10 minutes", joins)
		}
		r.coordinator.set(func() { r.coordinator.forever = nil })
		r.after(time.Minute)
		r.wantCommitted(5)
		for i := range 5 {
			r.wantRuns(fmt.Sprint("id", i), 1)
		}
	})
}

// sarama tells of a member that is fenced by ending the session's context with that cause.
func TestHeartbeatFences(t *testing.T) {
	for cause, fenced := range map[error]bool{
		sarama.ErrUnknownMemberId: true, sarama.ErrIllegalGeneration: true,
		sarama.ErrFencedInstancedId:   true,
		sarama.ErrRebalanceInProgress: false, context.Canceled: false,
	} {
		inBubble(t, 1, nil, nil, func(r *rig) {
			r.after(time.Second)
			_, session := r.group.joined()
			state := r.a.session(session)
			session.cancel(cause)
			r.after(time.Second)
			if err := context.Cause(state.fenced); errors.Is(err, ErrFenced) != fenced ||
				fenced && !errors.Is(err, cause) {
				t.Errorf("%v: fenced with %v", cause, err)
			}
			if err := context.Cause(state.assigned); errors.Is(err, ErrFenced) != fenced ||
				!errors.Is(err, cause) {
				t.Errorf("%v: the partitions ended with %v", cause, err)
			}
		})
	}
}

// A handler that runs when the group fences its member off does not keep the session.
func TestFencedPartitionIsGivenUp(t *testing.T) {
	inBubble(t, 1, func(ctx context.Context, _ *Message) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}, func(_ *rig, c *Config) { c.Drain = time.Second }, func(r *rig) {
		r.group.add(message("a", ""))
		r.after(time.Second)
		_, session := r.group.joined()
		r.a.fenced(session, sarama.ErrUnknownMemberId)
		r.after(2 * time.Second)
		if _, now := r.group.joined(); now == session {
			t.Error("the session goes on")
		}
		r.stop()
		r.after(time.Minute)
	})
}

// stubSession has a generation that changes, as a session of a cooperative group does.
type stubSession struct {
	sarama.ConsumerGroupSession
	generation int32
	member     string
	committing func()
}

// GenerationID implements sarama.ConsumerGroupSession.
func (s *stubSession) GenerationID() int32 { return s.generation }

// MemberID implements sarama.ConsumerGroupSession.
func (s *stubSession) MemberID() string { return s.member }

// Commit implements sarama.ConsumerGroupSession.
func (s *stubSession) Commit() {
	if s.committing != nil {
		s.committing()
	}
}

// newCommitsFor makes commits on a stub, and counts how often they fence.
func newCommitsFor(t *testing.T, s *stubSession) (c *commits, f *fakeCoordinator, fenced *int) {
	t.Helper()
	f = &fakeCoordinator{group: newFakeGroup(t, 2), config: sarama.NewConfig()}
	f.config.Version = sarama.V2_8_0_0
	cfg, err := Config{Unclaimed: true, Handler: func(context.Context, *Message) error {
		return nil
	}, Group: "g"}.complete()
	if err != nil {
		t.Fatal(err)
	}
	c = (&Adapter{cfg: cfg, client: f}).newCommits(s, nil)
	fenced = new(int)
	c.fence = func(error) { *fenced++ }
	return c, f, fenced
}

// A commit of a generation that has passed meanwhile is refused, and nobody is fenced: the
// session knows the new one already, or learns it from a join that is under way.
func TestOldGenerationIsNotFenced(t *testing.T) {
	for _, c := range []struct {
		name   string
		code   sarama.KError
		change func(*stubSession) // while the join is waited for
		fenced int
	}{
		{"a new generation", sarama.ErrIllegalGeneration, func(s *stubSession) {
			s.generation++
		}, 0},
		{"a new member id", sarama.ErrUnknownMemberId, func(s *stubSession) {
			s.member = "other"
		}, 0},
		{"nothing new", sarama.ErrIllegalGeneration, func(*stubSession) {}, 1},
		{"an instance id that somebody else has", sarama.ErrFencedInstancedId,
			func(s *stubSession) { s.generation++ }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &stubSession{generation: 7, member: "member"}
			s.committing = func() { c.change(s) }
			commits, f, fenced := newCommitsFor(t, s)
			f.answers = []error{c.code}
			commits.mark(topic, 0, 5)
			commits.commit()
			if *fenced != c.fenced {
				t.Errorf("fenced %d times, want %d", *fenced, c.fenced)
			}
			commits.commit()
			if next, ok := commits.confirmed(topic, 0); ok != (c.fenced == 0) || ok && next != 5 {
				t.Errorf("then %d is confirmed, %v", next, ok)
			}
			if last := f.requests[len(f.requests)-1]; c.fenced == 0 &&
				(last.ConsumerGroupGeneration != s.generation || last.ConsumerID != s.member) {
				t.Errorf("sent by %s in generation %d", last.ConsumerID,
					last.ConsumerGroupGeneration)
			}
		})
	}
}

// What was not committed when a partition was given up is not committed later: it may be
// somebody else's in the session's next generation. When it comes back it begins anew.
func TestForgottenPartitionIsNotCommitted(t *testing.T) {
	commits, f, _ := newCommitsFor(t, &stubSession{generation: 1, member: "member"})
	commits.mark(topic, 0, 50)
	commits.commit()
	f.answers = []error{sarama.ErrOffsetsLoadInProgress}
	commits.mark(topic, 0, 60)
	commits.mark(topic, 1, 9)
	commits.commit()
	commits.forget(topic, 0)
	commits.commit()
	if last := f.requests[len(f.requests)-1]; len(f.requests) != 3 {
		t.Errorf("%d requests", len(f.requests))
	} else if _, _, err := last.Offset(topic, 0); err == nil {
		t.Error("a partition that was given up is committed")
	}
	if _, ok := commits.confirmed(topic, 0); ok {
		t.Error("a partition that was given up is confirmed")
	}
	commits.mark(topic, 0, 55) // somebody has gone back
	commits.commit()
	if next, ok := commits.confirmed(topic, 0); !ok || next != 55 {
		t.Errorf("%d is confirmed, %v", next, ok)
	}
}

// A partition that the answer leaves out is not taken for committed.
func TestIncompleteAnswer(t *testing.T) {
	commits, f, _ := newCommitsFor(t, &stubSession{generation: 1, member: "member"})
	var told []error
	commits.observer.CommitFailed = func(_ string, _ int32, err error) { told = append(told, err) }
	delete(f.group.log, 1) // the coordinator knows nothing of it
	commits.mark(topic, 0, 5)
	commits.mark(topic, 1, 6)
	commits.commit()
	if _, ok := commits.confirmed(topic, 1); ok || len(told) != 1 ||
		!errors.Is(told[0], sarama.ErrIncompleteResponse) {
		t.Errorf("confirmed: %v, told %v", ok, told)
	}
	if next, ok := commits.confirmed(topic, 0); !ok || next != 5 {
		t.Errorf("the other one: %d, %v", next, ok)
	}
}

func TestCommitOfAStaticMember(t *testing.T) {
	s := &stubSession{generation: 1, member: "member"}
	_, f, _ := newCommitsFor(t, s)
	f.config.Consumer.Group.InstanceId = "pod-1"
	for version, want := range map[sarama.KafkaVersion]bool{sarama.V2_8_0_0: true,
		sarama.V2_2_0_0: false} {
		f.config.Version = version
		c := (&Adapter{client: f}).newCommits(s, nil)
		r := c.request([]due{{topicPartition{topic, 0}, 5, nil}})
		if got := r.GroupInstanceId != nil && *r.GroupInstanceId == "pod-1"; got != want {
			t.Errorf("%v: instance id %v", version, r.GroupInstanceId)
		}
	}
}

// stubClient is a sarama.Client that is not asked for more.
type stubClient struct {
	sarama.Client
	config *sarama.Config
	closed bool
}

// Config implements sarama.Client.
func (c stubClient) Config() *sarama.Config { return c.config }

// Closed implements sarama.Client.
func (c stubClient) Closed() bool { return c.closed }

func TestCommitClientConfig(t *testing.T) {
	safe, old := SafeConfig(nil), sarama.NewConfig()
	old.Version = sarama.V0_10_2_0
	for _, c := range []struct {
		name, field string
		client      sarama.Client
		group       string
	}{
		{"usable", "", stubClient{config: safe}, "g"},
		{"no group", "Group", stubClient{config: safe}, ""},
		{"closed", "CommitClient", stubClient{config: safe, closed: true}, "g"},
		{"old", "CommitClient", stubClient{config: old}, "g"},
		{"none", "", nil, "g"},
	} {
		cfg := usable(t, Config{CommitClient: c.client, Group: c.group})
		_, err := New(cfg)
		var input *dedup.InputError
		if c.field == "" && err != nil ||
			c.field != "" && (!errors.As(err, &input) ||
				input.Field != "kafkaadapter.Config."+c.field) {
			t.Errorf("%s: %v, want an InputError about %q", c.name, err, c.field)
		}
	}
	a := newAdapter(t, Config{CommitClient: stubClient{config: safe}, Group: "g"})
	static := SafeConfig(nil)
	static.Consumer.Group.InstanceId = "pod-1"
	wantRefusal(t, a.CheckConfig(static), "sarama.Config.Consumer.Group.InstanceId",
		`is "pod-1", and "" in the configuration of CommitClient`)
	if err := a.CheckConfig(safe); err != nil {
		t.Error(err)
	}
}

// Handlers are cancelled at once, not when the drain budget is used up: the partition is
// somebody else's.
func TestFencingCancelsHandlersAtOnce(t *testing.T) {
	var after time.Duration
	handler := func(ctx context.Context, m *Message) error {
		if m.ID != "slow" || after > 0 {
			return nil
		}
		began := time.Now()
		<-ctx.Done()
		after = time.Since(began)
		return ctx.Err()
	}
	inBubble(t, 1, handler, func(r *rig, c *Config) {
		withCoordinator(r, c)
		r.coordinator.answers = []error{sarama.ErrIllegalGeneration}
	}, func(r *rig) {
		r.group.add(message("quick", ""), message("slow", ""))
		r.after(time.Minute)
		if after == 0 || after > time.Second {
			t.Errorf("the handler was cancelled after %v", after)
		}
		r.wantCommitted(2)
	})
}
