package dedup

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// goldenSteps is what servers hold: it is never changed.
const goldenSteps = "\x01" + "\x06charge\x02\x00\x00\x00\x04ch_1" + "\x04mail\x01" + "\x06report\x00" + "\x05empty\x02\x00\x00\x00\x00"

func TestGoldenSteps(t *testing.T) {
	want := []step{
		{name: "charge", kind: stepValue, value: []byte("ch_1")}, {name: "mail", kind: stepNil},
		{name: "report", kind: stepNotKept}, {name: "empty", kind: stepValue},
	}
	if got := string(encodeSteps(want)); got != goldenSteps {
		t.Errorf("encoded %q", got)
	}
	got, err := decodeSteps([]byte(goldenSteps))
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v", got, err)
	}
	for i, s := range got {
		if s.name != want[i].name || s.kind != want[i].kind || !bytes.Equal(s.value, want[i].value) || !s.told {
			t.Errorf("decoded %+v, want %+v", s, want[i])
		}
	}
}

func TestDecodeStepsRefuses(t *testing.T) {
	many := "\x01"
	for i := range maxSteps + 1 {
		name := fmt.Sprint(i)
		many += string(rune(len(name))) + name + "\x01"
	}
	for name, raw := range map[string]string{
		"version 0":           "\x00",
		"version 2":           "\x02" + goldenSteps[1:],
		"name of no bytes":    "\x01\x00\x01",
		"name of 65 bytes":    "\x01\x41" + strings.Repeat("x", 65) + "\x01",
		"name cut":            "\x01\x06char",
		"kind missing":        "\x01\x01a",
		"kind 3":              "\x01\x01a\x03",
		"length cut":          "\x01\x01a\x02\x00\x00\x00",
		"value cut":           "\x01\x01a\x02\x00\x00\x00\x02x",
		"length of 4 GiB":     "\x01\x01a\x02\xff\xff\xff\xffx",
		"a byte too many":     goldenSteps + "\x01",
		"a name twice":        "\x01\x01a\x01\x01a\x00",
		"65 steps":            many,
		"more than 64 KiB":    "\x01\x01a\x02\x00\x01\x00\x00" + strings.Repeat("x", 64<<10),
		"another format":      "{\"charge\":1}",
		"a value for no kind": "\x01\x01a\x01\x00\x00\x00\x00",
	} {
		if got, err := decodeSteps([]byte(raw)); err == nil {
			t.Errorf("%s: was read as %+v", name, got)
		}
	}
	for n := 2; n < len(goldenSteps); n++ {
		steps, err := decodeSteps([]byte(goldenSteps[:n]))
		if err == nil && string(encodeSteps(steps)) != goldenSteps[:n] {
			t.Errorf("cut at %d: was read as %+v", n, steps)
		}
	}
}

// Whatever is read is written the same way. So the steps that a later attempt adds to are never
// shorter, and stores keep the longer.
func FuzzDecodeSteps(f *testing.F) {
	f.Add([]byte(goldenSteps))
	f.Add([]byte{})
	f.Add([]byte("\x01"))
	f.Add([]byte("\x01\x01a\x02\x00\x00\x00\x02x"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := decodeSteps(raw)
		if err != nil || len(raw) == 0 {
			return
		}
		if again := encodeSteps(list); !bytes.Equal(again, raw) {
			t.Fatalf("read %x, written again %x", raw, again)
		}
		size := 1
		for _, s := range list {
			size += s.size()
		}
		if size != len(raw) {
			t.Fatalf("%d bytes have size %d", len(raw), size)
		}
	})
}

// Whatever steps are added, all names fit into the room there is.
func FuzzStepsFit(f *testing.F) {
	f.Add([]byte{255, 255, 255, 0, 1, 2, 64})
	f.Fuzz(func(t *testing.T, sizes []byte) {
		var s steps
		for i, size := range sizes[:min(len(sizes), maxSteps)] {
			name := fmt.Sprintf("%0*d", maxStepName-i%3, i)
			if _, _, err := s.begin(nil, name); err != nil {
				t.Fatal(err)
			}
			s.add(step{name: name, kind: stepValue, value: make([]byte, int(size)<<8)})
			s.leave(name)
		}
		blob, n := s.blob()
		list, err := decodeSteps(blob)
		if err != nil || len(list) != n || len(blob) > maxStepBytes {
			t.Fatalf("%d steps of %d, %d bytes, %v", len(list), n, len(blob), err)
		}
	})
}
