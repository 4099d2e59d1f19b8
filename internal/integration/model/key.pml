/*
 * One key's life, as DESIGN.md has it: claim, lapse, takeover, renew, danger, uncertain, resolve,
 * release, fail, complete in time and late. Every worker has got the same message, and goes on until
 * it may acknowledge it. Between any two steps
 *
 *   - a request is lost, or its reply, or it is executed long after it was given up (LOSSES);
 *   - a worker crashes, and begins anew (CRASHES);
 *   - a worker stands still until its lease is over (PAUSES);
 *   - a handler fails (FAILURES), a resolver does not know (DOUBTS);
 *   - what a released or lapsed claim has left is forgotten (HOLDS).
 *
 * Each of these numbers bounds how often that happens, so that every run ends without faults. Of
 * time the model keeps what rule 9 of DESIGN.md keeps: the owner's clock, which starts before a
 * request is sent, runs out before the lease that the request has got.
 *
 * Not in here: the end of the window, Mark and Forget by an operator, generations of a partition.
 *
 *   WORKERS  2 or 3
 *   ASKED    handlers declare danger; worker 0 has no resolver, the others have
 *   COUNTS   attempts and fences are counted too
 *   FAULT_x  plants a fault, which the checker must find
 *   CLAIM_AGAIN  leaves in what is out otherwise: a claim that was sent twice is executed a second
 *            time when its token has had the key and somebody else has had it since. The token owns
 *            the key again, by a claim that its worker knows nothing of: with another fence.
 */

/* A worker has three tokens. One may be on record, and one in a request that is on its way: so
 * there is always one that nobody knows. */
#define TOKENS (3 * WORKERS)
#define NOBODY TOKENS
#define worker_of(t) ((t) / 3)

mtype = { absent, in_progress, released, uncertain, succeeded, failed };
mtype = { none, claim, renew, declare, complete, landed, fail, release, not_begun };
mtype = { no_reply, acquired, mine, duplicate, in_flight, unsure, held, late, refused };

/* The store. */
mtype state = absent;
byte owner = NOBODY;     /* of the claim; later the token that has written the end */
bool live;               /* the lease has not lapsed */
bool renewed;            /* it lasts from a renewal that the owner has not heard of yet */
bool danger;
bool wrote_late;
byte fence;
byte attempt;

/* The workers. */
typedef Worker {
  byte token = NOBODY;
  bool runs;             /* it takes the claim for its own: the effect may happen */
  bool did;              /* its effect has happened, and no end was answered yet */
  bool asked;            /* its resolver has said that the effect has not happened */
  bool dead;
  bool acked;
  mtype parked = none;   /* a request that it has given up, and that is on its way */
  byte parked_token = NOBODY;
}
Worker worker[WORKERS];
#define self worker[w]

/* The owners' clocks, by token: from before the claim was first sent, and from before the renewal
 * that is under way. */
bool valid[TOKENS];
bool renewing[TOKENS];

byte losses = LOSSES;
byte crashes = CRASHES;
byte pauses = PAUSES;
byte failures = FAILURES;
byte doubts = DOUBTS;
byte holds = HOLDS;

/* What has really happened, which nobody but the resolvers and the rules may look at. */
bool happened;           /* the effect */
byte allowance = 1;      /* how many more effects may be explained */
bool declared;           /* danger, and no attempt that knew of it has ended as known */
bool must_ask[TOKENS];   /* declared was true when the token got the key */
byte begun;              /* attempts whose handler has begun, since the key was last absent */
byte top_fence;

#ifdef CLAIM_AGAIN
/* Fences, counted per token: that of its newest claim, and the one that its worker was told. */
byte granted[TOKENS];
byte told[TOKENS];
#define learn(t) told[t] = granted[t]
#else
#define learn(t) skip
#endif

/* A rule's name is a variable, because the checker prints the text of what does not hold. */
bool mark_after_effect = true;
bool late_owner_changes_nothing = true;
bool end_is_final = true;
bool one_valid_owner = true;
bool danger_is_asked_about = true;
bool ack_after_record = true;
bool doubles_are_explained = true;
bool fence_grows = true;
bool attempt_is_counted = true;
inline rule(name, holds_true) { name = (holds_true); assert(name) }

#define ended (state == succeeded || state == failed)
#define owns(t) (state == in_progress && owner == (t))
#if defined(CLAIM_AGAIN) && !defined(FAULT_FENCE_NOT_COMPARED)
#define holds(t) (owns(t) && (told[t] == 0 || told[t] == granted[t]))
#else
#define holds(t) owns(t)
#endif

#ifdef ASKED
#define resolves(t) (worker_of(t) > 0)
#else
#define resolves(t) true
#endif

#ifdef FAULT_TAKEOVER_BEFORE_LAPSE
#define defended false
#else
#define defended live
#endif
#ifdef FAULT_RELEASE_WITHOUT_OWNER_CHECK
#define may_release(t) (state == in_progress)
#else
#define may_release(t) holds(t)
#endif
#ifdef FAULT_LANDED_OVERWRITES
#define may_land true
#else
#define may_land (!ended)
#endif
#ifdef FAULT_RELEASE_FORGETS_DANGER
#define reach(op) released
#else
#define reach(op) ((op == release && danger) -> uncertain : released)
#endif

/* grant makes t the owner. The danger stays. */
inline grant(t) {
#ifdef COUNTS
  if
  :: state == absent ->
    attempt = 1; begun = 0;
#ifdef FAULT_FENCE_FORGOTTEN
    fence = 0
#endif
  :: else ->
#ifndef FAULT_ATTEMPT_NOT_COUNTED
    attempt++
#endif
  fi;
  fence++;
  rule(fence_grows, fence > top_fence);
  top_fence = fence;
#endif
#ifdef FAULT_TAKEOVER_FORGETS_DANGER
  danger = false;
#endif
  state = in_progress; owner = t; live = true; renewed = false;
  must_ask[t] = declared;
#ifdef CLAIM_AGAIN
  granted[t]++
#else
  if
  :: worker[worker_of(t)].parked == claim && worker[worker_of(t)].parked_token == t ->
    worker[worker_of(t)].parked = none; worker[worker_of(t)].parked_token = NOBODY
  :: else
  fi
#endif
}

/* finish writes how an attempt has ended. */
inline finish(to, t, is_late) {
  state = to; owner = t; live = false; renewed = false; wrote_late = is_late;
  danger = (state == uncertain)
}

hidden mtype was_state;
hidden byte was_owner;
hidden byte was_live;
hidden byte was_danger;

/* execute is one request at the store: reply is what is answered. */
inline execute(op, t, reply) {
  d_step {
    was_state = state; was_owner = owner; was_live = live; was_danger = danger;
    if
    :: op == claim ->
      if
      :: ended -> reply = duplicate
      :: owns(t) -> reply = mine
      :: state == in_progress && owner != t && defended -> reply = in_flight
      :: else ->
        if
        :: danger && !resolves(t) -> reply = unsure
        :: else -> grant(t); reply = acquired
        fi
      fi
    :: op == renew || op == declare ->
      if
      :: holds(t) ->
        live = true; renewed = true; reply = held;
        if
        :: op == declare -> danger = true; declared = true
        :: else
        fi
      :: else -> reply = refused
      fi
    :: op == complete || op == landed ->
      if
      :: holds(t) -> finish(succeeded, t, false); reply = held
      :: state == succeeded && owner == t -> reply = (wrote_late -> late : held)
      :: else ->
        if
        :: op == landed && may_land -> finish(succeeded, t, true); reply = late
        :: else -> reply = refused
        fi
      fi
    :: op == fail ->
      if
      :: holds(t) -> finish(failed, t, false); reply = held
      :: else -> reply = ((state == failed && owner == t) -> held : refused)
      fi
    :: op == release || op == not_begun ->
      if
      :: may_release(t) ->
        if
        :: op == not_begun -> declared = false
        :: else
        fi;
        finish(reach(op), t, false); reply = held
      :: else -> reply = (((state == released || state == uncertain) && owner == t) -> held : refused)
      fi
    fi;
    if
    :: ended -> declared = false
    :: else
    fi;
    rule(mark_after_effect, state != succeeded || happened);
    rule(end_is_final, (was_state != succeeded && was_state != failed) ||
      (state == was_state && owner == was_owner));
    rule(late_owner_changes_nothing, op == claim || (was_state == in_progress && was_owner == t) ||
      (op == landed && state == succeeded) ||
      (state == was_state && owner == was_owner && live == was_live && danger == was_danger))
  }
}

/* send is a request of worker w under its token t, and what w hears of it. */
inline send(op) {
  atomic {
    if
    :: execute(op, t, answer)
    :: losses > 0 -> losses--; execute(op, t, answer); answer = no_reply
    :: losses > 0 -> losses--; answer = no_reply
    :: losses > 0 && self.parked == none ->
      losses--; self.parked = op; self.parked_token = t; answer = no_reply
    fi
  }
}

/* alone checks, when a claim begins to count or counts for longer, that no other one does. */
inline alone() {
  other = 0;
  do
  :: other < WORKERS ->
    rule(one_valid_owner, other == w || !worker[other].runs || !valid[worker[other].token]);
    other++
  :: else -> break
  od;
  other = 0
}

/* excuse: the effect of this worker may happen once more from here on. Where danger was declared it
 * may not: the resolver knows of it. */
inline excuse() {
#ifdef ASKED
  self.did = false
#else
  if
  :: self.did -> self.did = false; allowance++
  :: else
  fi
#endif
}

/* effect is also that of a handler which has stood still since it looked at its clock. */
inline effect() {
  d_step {
    rule(danger_is_asked_about, !must_ask[t] || self.asked);
    if
    :: valid[t] -> self.did = true
    :: else -> allowance++
    fi;
    rule(doubles_are_explained, allowance > 0);
    allowance--;
    happened = true;
    self.asked = false; must_ask[t] = false; kept = false
  }
}

/* forget is the end of an attempt for its worker. What the store still holds of it lapses. */
inline forget() {
  valid[t] = false; renewing[t] = false; must_ask[t] = false;
  self.runs = false; self.did = false; self.asked = false; self.token = NOBODY;
  t = NOBODY; answer = none; finding = false; kept = false
}

inline acknowledge() {
  d_step {
    rule(ack_after_record, ended);
    forget();
    self.acked = true
  }
}

/* heard is the end of a renewal of the claim, which may count for longer now. */
inline heard() {
  if
  :: answer == held && renewing[t] ->
    valid[t] = true;
    if
    :: self.runs -> alone()
    :: else
    fi;
    if
    :: owns(t) -> renewed = false
    :: else
    fi
  :: answer == held && !renewing[t] -> answer = no_reply /* it came too late to say anything */
  :: else
  fi;
  renewing[t] = false
}

proctype Consumer(byte w) {
  byte t = NOBODY;
  byte other;
  mtype answer = none;
  bool finding, kept;

life:
  {
    do
    :: self.acked -> break
    :: d_step {
        !self.acked ->
        if
        :: t != NOBODY -> excuse(); forget()
        :: else
        fi;
        /* A new attempt. Its clock runs from here, whatever is answered, and when. */
        t = 3 * w;
        do
        :: t == owner || t == self.parked_token -> t++
        :: else -> break
        od;
        self.token = t; valid[t] = true
#ifdef CLAIM_AGAIN
        ; granted[t] = 0; told[t] = 0
#endif
      };

ask:
      atomic {
        send(claim);
        if
        :: answer == acquired || answer == mine -> learn(t)
        :: else
        fi;
        finding = (danger && (answer == acquired || answer == mine))
      };
      if
      :: answer == duplicate -> acknowledge(); goto next
      :: answer == in_flight ->
#ifdef FAULT_IN_FLIGHT_ACKNOWLEDGED
        acknowledge();
#endif
        goto next
      :: answer == unsure -> goto next
      :: answer == no_reply -> goto ask
      :: answer == no_reply -> goto give_back
      :: answer == mine && !valid[t] -> goto give_back
      :: atomic { answer == mine && valid[t] -> renewing[t] = true };
        /* An earlier send has got it, and a part of the lease is gone. */
        send(renew);
        d_step { heard() };
        if
        :: answer == held
        :: answer == refused -> goto next
        :: answer == no_reply -> goto give_back
        fi
      :: answer == acquired
      fi;
      d_step {
        answer = none;
#ifdef FAULT_LATE_ANSWER_COUNTS
        valid[t] = true;
#endif
        if
        :: valid[t] ->
          self.runs = true; alone();
#ifdef COUNTS
          if
          :: owns(t) -> begun++; rule(attempt_is_counted, attempt >= begun)
          :: else
          fi
#endif
        :: else
        fi
      };

found:
      if
      :: !self.runs -> goto give_back
      :: self.runs && !finding -> goto handle
      :: self.runs && finding ->
        /* The resolver, which asks the downstream. */
        if
        :: atomic { happened -> finding = false }; goto record
        :: !valid[t] -> goto give_back
        :: atomic { doubts > 0 -> doubts-- }; goto give_back
        :: atomic { !happened && valid[t] -> self.asked = true; finding = false }; goto handle
        fi
      fi;

handle:
      if
      :: atomic { !kept -> kept = true; renewing[t] = true };
        send(renew);
        d_step { heard() };
        if
        :: answer == refused -> goto give_back
        :: atomic { answer != refused -> answer = none }; goto handle
        fi
      :: atomic { failures > 0 -> failures-- }; goto give_back
      :: atomic { failures > 0 -> failures--; self.runs = false }; goto record_failure
      :: !valid[t] ->
        /* It was cancelled, and returns an error, or nil, which is no effect either. */
#ifdef FAULT_CANCELLED_IS_LANDED
        goto record
#else
        goto give_back
#endif
#ifdef FAULT_MARK_BEFORE_EFFECT
      :: send(landed)
#endif
#ifdef ASKED
      :: renewing[t] = true
#else
      :: effect(); goto returned
#endif
      fi;

#ifdef ASKED
dare:
      send(declare);
      if
      :: atomic { answer == held && renewing[t] ->
          if
          :: owns(t) -> renewed = false
          :: else
          fi;
          renewing[t] = false; answer = none
        }
      :: answer == no_reply -> goto dare
      :: atomic { answer == no_reply || answer == refused || !renewing[t] -> renewing[t] = false; self.runs = false };
        send(not_begun);
        goto next
      fi;
      effect();
#endif

returned:
      if
      :: true
      :: !valid[t] -> goto next /* it was cancelled before it returned: nothing is written */
      fi;
record:
      atomic {
        self.runs = false;
        if
        :: send(landed)
        :: send(complete) /* its handler has read the fence */
        fi
      };
      if
      :: answer == held -> acknowledge(); goto next
      :: answer == late || answer == refused -> goto next /* the lease was lost: it comes again */
      :: answer == no_reply -> goto record
      :: answer == no_reply ->
#ifdef FAULT_UNKNOWN_ACKNOWLEDGED
        acknowledge();
#endif
        goto next
      fi;

record_failure:
      send(fail);
      if
      :: answer == held -> acknowledge(); goto next
      :: answer == refused -> goto next
      :: answer == no_reply -> goto record_failure
      :: answer == no_reply -> goto next
      fi;

give_back:
      atomic { self.runs = false; send(release) };
next:
      skip
    od
  } unless {
    d_step {
      self.dead ->
      self.dead = false;
      if
      :: t != NOBODY -> excuse(); forget()
      :: else
      fi
    };
    goto life
  }
}

/* Fate is what befalls worker w. */
proctype Fate(byte w) {
  byte t;
  mtype op = none;
  mtype ignored = none;
end:
  do
  :: atomic { crashes > 0 && !self.acked && self.token != NOBODY && !self.dead -> crashes--; self.dead = true }
  :: d_step {
      pauses > 0 && self.token != NOBODY && valid[self.token] ->
      pauses--; valid[self.token] = false;
      excuse()
    }
  :: d_step {
      pauses > 0 && self.token != NOBODY && renewing[self.token] ->
      pauses--; valid[self.token] = false; renewing[self.token] = false;
      excuse()
    }
  :: atomic {
      self.parked != none ->
      op = self.parked; t = self.parked_token;
      self.parked = none; self.parked_token = NOBODY;
      execute(op, t, ignored);
      op = none; t = 0; ignored = none
    }
  od
}

/* Time is what happens at the store when nobody asks it for anything. */
proctype Time() {
end:
  do
#ifndef FAULT_NEVER_LAPSES
  :: d_step {
      state == in_progress && live && !valid[owner] && !(renewed && renewing[owner]) -> live = false
    }
#endif
  :: d_step {
      holds > 0 && (state == released || (state == in_progress && !live && !danger)) ->
      holds--;
      state = absent; owner = NOBODY; wrote_late = false;
      rule(danger_is_asked_about, !declared)
    }
  od
}

init {
  atomic {
    run Consumer(0); run Fate(0);
    run Consumer(1); run Fate(1);
#if WORKERS > 2
    run Consumer(2); run Fate(2);
#endif
    run Time()
  }
}

#ifdef PROGRESS
#if WORKERS > 2
ltl ends { <> (worker[0].acked && worker[1].acked && worker[2].acked) }
#else
ltl ends { <> (worker[0].acked && worker[1].acked) }
#endif
#endif
