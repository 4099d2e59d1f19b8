package dedup

import "testing"

// TestNewerSteps prevents steps that a later version has written, in whatever form, from being read
// as those of this one, and written over.
func TestNewerSteps(t *testing.T) {
	b := encodeSteps([]step{{name: "charge", kind: stepValue, value: []byte("v")}})
	if list, err := decodeSteps(b); err != nil || len(list) != 1 {
		t.Fatalf("our own: %+v, %v", list, err)
	}
	for _, version := range []byte{0, stepsVersion + 1, 255} {
		b[0] = version
		if list, err := decodeSteps(b); err == nil {
			t.Errorf("version %d was read: %+v", version, list)
		}
	}
}
