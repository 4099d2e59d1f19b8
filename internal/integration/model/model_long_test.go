//go:build long

package model_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

const (
	asked  = "-DASKED"
	counts = "-DCOUNTS"
	again  = "-DCLAIM_AGAIN"
)

// Every rule of key.pml holds in every state that the faults within the bounds can lead to.
func TestModel(t *testing.T) {
	rows := []struct {
		name     string
		bounds   bounds
		progress bool
		defines  []string
	}{
		{"claimed", bounds{2, 1, 1, 1, 1, 0, 1}, false, nil},
		{"asked", bounds{2, 1, 1, 1, 1, 1, 1}, false, []string{asked}},
		{"claims come twice", bounds{2, 1, 1, 1, 0, 0, 1}, false, []string{again}},
		{"claims come twice, asked", bounds{2, 1, 1, 1, 0, 0, 0}, false, []string{asked, again}},
		{"claims come twice, two losses", bounds{2, 2, 1, 1, 0, 0, 0}, false,
			[]string{asked, again}},
		{"counts", bounds{2, 1, 1, 1, 0, 0, 1}, false, []string{counts}},
		{"two losses", bounds{2, 2, 1, 1, 0, 0, 0}, false, nil},
		{"three workers", bounds{3, 0, 1, 1, 0, 0, 0}, false, nil},
		{"three workers, asked", bounds{3, 0, 1, 1, 0, 0, 0}, false, []string{asked}},
		{"ends", bounds{2, 1, 1, 1, 0, 0, 0}, true, nil},
		{"ends, asked", bounds{2, 1, 1, 0, 0, 0, 0}, true, []string{asked}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			v := check(t, row.bounds, row.progress, row.defines...)
			t.Logf("%d states in %v", v.states, v.took)
			assert.Empty(t, v.broken, "%+v", v)
			assert.True(t, v.complete, "%+v", v)
		})
	}
}

// Shows that the model finds faults: each fault breaks the rule that is there for it.
func TestModelFindsFaults(t *testing.T) {
	all, few := bounds{2, 1, 1, 1, 1, 1, 1}, bounds{2, 1, 1, 1, 0, 0, 0}
	rows := []struct {
		fault, broken string
		defines       []string
		progress      bool
	}{
		{fault: "MARK_BEFORE_EFFECT", broken: "mark_after_effect"},
		{fault: "CANCELLED_IS_LANDED", broken: "mark_after_effect"},
		{fault: "RELEASE_WITHOUT_OWNER_CHECK", broken: "late_owner_changes_nothing"},
		{fault: "LANDED_OVERWRITES", broken: "end_is_final"},
		{fault: "TAKEOVER_BEFORE_LAPSE", broken: "doubles_are_explained"},
		{fault: "LATE_ANSWER_COUNTS", broken: "one_valid_owner"},
		{fault: "TAKEOVER_FORGETS_DANGER", broken: "danger_is_asked_about",
			defines: []string{asked}},
		{fault: "RELEASE_FORGETS_DANGER", broken: "danger_is_asked_about",
			defines: []string{asked}},
		{fault: "IN_FLIGHT_ACKNOWLEDGED", broken: "ack_after_record"},
		{fault: "UNKNOWN_ACKNOWLEDGED", broken: "ack_after_record"},
		{fault: "FENCE_FORGOTTEN", broken: "fence_grows", defines: []string{counts}},
		{fault: "ATTEMPT_NOT_COUNTED", broken: "attempt_is_counted", defines: []string{counts}},
		{fault: "NEVER_LAPSES", broken: "progress", progress: true},
		// The network executes a claim twice, with two leases of others in between.
		{fault: "FENCE_NOT_COMPARED", broken: "danger_is_asked_about",
			defines: []string{asked, again}},
	}
	for _, row := range rows {
		t.Run(row.fault, func(t *testing.T) {
			b := all
			if row.fault == "FENCE_NOT_COMPARED" {
				b = few
			}
			v := check(t, b, row.progress, append(row.defines, "-DFAULT_"+row.fault)...)
			t.Logf("%s after %d states in %v", v.broken, v.states, v.took)
			assert.Equal(t, row.broken, v.broken, "broken")
		})
	}
}
