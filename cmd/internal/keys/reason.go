package keys

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter"
)

// pages is the base address of the pages that explain what to do.
const pages = "https://github.com/onceward/onceward/blob/main/docs/"

// reason says what a record means and what to do about it.
func (e *Explanation) reason(r *dedup.Record, o *Options) {
	switch r.State {
	case driver.StateAbsent:
		e.absent(o)
	case driver.StateInProgress:
		e.inFlight(r)
	case driver.StateSucceeded:
		e.succeeded(r)
	case driver.StateFailed:
		e.failed(r)
	case driver.StateReleased:
		e.because("The attempt ended without an effect that is on record: its handler returned an "+
			"error, or its process was stopped, or a person has released the key.",
			"The key runs again with its next delivery, as attempt "+fmt.Sprint(r.Attempt+1)+".")
		e.Do = []string{"Look for the error of the attempt in the program's log, by key_id " + e.ID + ".",
			"Check that the consumer runs, or that the sender retries: without a delivery nothing runs."}
		e.Page = pages + "guides/operating.md#double-effects"
	case driver.StateUncertain:
		e.uncertain(o)
	}
	e.around()
}

func (e *Explanation) because(why ...string) { e.Why = append(e.Why, why...) }

func (e *Explanation) absent(o *Options) {
	e.because("No record has this name: the message never came, or its record has another name, or "+
		"the record is gone (its window is over, somebody has forgotten it, or the server has lost it).",
		"A message without a record runs with its next delivery.")
	e.Do = []string{"Check each flag that names the key: with another namespace, scope or principal it " +
		"is another key."}
	if !o.clue.line && o.id == "" {
		e.Do = append(e.Do, "Give a line of the program's log about it instead of KEY: the ID in it leads to the record.")
	}
	e.Page = pages + "runbooks/window-too-short.md"
	for _, s := range e.Servers {
		switch {
		case s.Evicted > 0:
			e.Page = pages + "runbooks/evictions.md"
		case s.Promoted:
			e.Page = pages + "runbooks/amnesia.md"
		}
	}
}

func (e *Explanation) inFlight(r *dedup.Record) {
	e.Page = pages + "guides/operating.md#keys-in-flight-for-too-long"
	if r.Remaining > 0 {
		e.because("An attempt holds the key, and its process has renewed the lease: the effect is " +
			"neither done nor failed. Other deliveries wait for it, or are refused.")
		e.Do = []string{"Run this again in half a lease. If the lease has grown again, the handler " +
			"is slow or hangs: look at the goroutines of its process. If the lease falls, its process is gone."}
		return
	}
	e.because(fmt.Sprintf("The lease of attempt %d lapsed %s ago: its process died, was suspended, "+
		"or lost the store. Its effect may have happened.", r.Attempt, short(-r.Remaining.Milliseconds())),
		fmt.Sprintf("Nobody has claimed the key since. It runs with its next delivery, as attempt %d.",
			r.Attempt+1))
	e.Do = []string{"Check that the consumer runs, or that the sender retries.",
		"Compare the time of the claim with restarts of the program."}
	e.Page = pages + "runbooks/lease-lost.md"
}

func (e *Explanation) succeeded(r *dedup.Record) {
	e.Page = pages + "guides/operating.md#double-effects"
	e.Do = []string{"Nothing, if the effect happened once."}
	switch {
	case e.mark:
		e.because("The effect and this mark were committed in one transaction: it happened once.")
	case e.member:
		e.because("The effect is done. The layout compact keeps no more than that: not when, and not " +
			"by which attempt.")
	case r.Attempt > 1:
		e.because(fmt.Sprintf("The effect is done, with attempt %d. The %d before it ended without a "+
			"record: a crash, a lost lease or an error. A person or Resolver that settles a key counts "+
			"as an attempt, too.", r.Attempt, r.Attempt-1),
			"An attempt that ended between its effect and its record has had its effect: so the "+
				"effect may have happened more than once, unless record and effect are one transaction.")
		e.Do = []string{"Compare the time of the claim with restarts, and look for lost leases: onceward.dedup.lease.lost."}
	default:
		e.because("The effect is done, with the first attempt: under this key it ran once. " +
			"Duplicates are skipped.")
	}
	e.Do = append(e.Do, "If it happened twice, look for a second key of the same operation (another "+
		"id, scope or prefix), for another path to the effect, and for changes in the log (msg=audit).")
}

func (e *Explanation) failed(r *dedup.Record) {
	e.Page = pages + "guides/operating.md#double-effects"
	e.because("It failed for good: duplicates get the failure that is stored, and the effect does " +
		"not run again.")
	if strings.HasPrefix(string(r.Result), "parked: ") {
		e.because("The message was parked: it is in the dead-letter topic, or where Park has put it.")
		e.Do = []string{"When its cause is repaired, send it back: onceward replay, for Kafka."}
		return
	}
	e.Do = []string{"--result shows the failure. When its cause is repaired: onceward forget --id " +
		e.ID + ", and send the message again."}
}

func (e *Explanation) uncertain(o *Options) {
	e.because("An attempt declared its point of no return (MarkIrreversible) and ended without "+
		"saying whether its effect has happened: its process died, or it gave up.",
		"Nothing runs again until somebody knows. Deliveries are refused or parked meanwhile.")
	where := o.where()
	e.Do = []string{
		"Ask the downstream about the idempotency key that it was sent, or look at the account.",
		"It has happened: onceward resolve --id " + e.ID + " --done --window WINDOW" + where,
		"It has not, and no request is on its way: onceward resolve --id " + e.ID + " --released" + where,
	}
	e.Page = pages + "runbooks/uncertain.md"
}

// where returns the flags that lead to the same store again. Instead of an address that may contain
// a password it returns the form of one.
func (o *Options) where() (flags string) {
	if o.Server.Cluster {
		flags = " --cluster"
	}
	prefix := o.Prefix
	if prefix == redisadapter.DefaultPrefix {
		prefix = ""
	}
	for _, flag := range [][2]string{{"redis", address(o.Server.Redis, "URL")},
		{"sql", address(o.Server.SQL, "DSN")}, {"prefix", prefix}, {"table", o.Table},
		{"schema", o.Schema}, {"secret-env", o.secretEnv}} {
		if flag[1] != "" {
			flags += " --" + flag[0] + " " + flag[1]
		}
	}
	return flags
}

// plainAddress is an address that has no place for a password, and that no shell changes.
var plainAddress = regexp.MustCompile(`^((redis|rediss|unix)://|env:|sqlite:)?[\w.:/-]+$`)

// address returns an address for a line of shell, or form if it is not a plain one.
func address(text, form string) string {
	if text == "" || plainAddress.MatchString(text) {
		return text
	}
	return form
}

// around adds to the explanation how the servers may have affected the key.
func (e *Explanation) around() {
	for _, s := range e.Servers {
		if s.StartedMS != nil && e.ClaimedMS != nil && *s.StartedMS < *e.ClaimedMS {
			e.because(fmt.Sprintf("%s was started after the claim, %s ago: calls failed meanwhile, "+
				"and writes that it had not saved are lost.", s.Name, short(*s.StartedMS)))
		}
		if s.Evicted > 0 {
			e.because(fmt.Sprintf("%s has evicted %d keys since it was started: claims and records "+
				"may have been among them, and their effects run twice.", s.Name, s.Evicted))
		}
		if s.Promoted {
			e.because(s.Name + " took over from another master: writes that it had not received are lost.")
		}
	}
}
