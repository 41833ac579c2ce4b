package config

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/change"
)

// FuzzState says what would be done by a state as a journal has it: of a file of any kind
// of server, with anything in it. What was packed is unpacked the same; what was not
// takes no more memory than a file may.
func FuzzState(f *testing.F) {
	names := make([]string, 0, len(kinds))
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	for i := range names {
		f.Add(uint8(i), []byte("worker_connections 10;\n[www]\npm.max_children = 5\nmaxconn 3\nMaxRequestWorkers 7\n"), []byte{}, "worker_connections", "1024", 1)
		f.Add(uint8(i), []byte{}, []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"), "a\nb;$(id)", "", -1)
	}
	f.Fuzz(func(t *testing.T, kind uint8, text, compressed []byte, name, value string, line int) {
		// What is unpacked may be a file of the largest size.
		budgettest.Within(t, len(text)+len(compressed)+len(value), budgettest.Cost{PerByte: 4096, Fixed: 5*maxFile + 8<<20, CPU: 2 * time.Second}, func() {
			p := pack(text)
			if got, err := p.unpack(); err != nil || !bytes.Equal(got, text) {
				t.Fatalf("%q is unpacked as %q: %v", text, got, err)
			}
			if got, err := packed(compressed).unpack(); err == nil && len(got) > maxFile+1 {
				t.Fatalf("%d bytes", len(got))
			}
			for _, old := range []packed{p, packed(compressed)} {
				// No process has this number.
				data, err := json.Marshal(kept{Server: names[int(kind)%len(names)], PID: 1 << 30, Old: old, Line: line})
				if err != nil {
					t.Fatal(err)
				}
				c := &cause.Change{Kind: cause.ChangeConfig, Server: names[int(kind)%len(names)], Name: name, Value: value, Line: line, Path: "/etc/x"}
				for _, state := range [][]byte{data, text, compressed} {
					files{}.Commands(c, change.State{Data: state, Was: value})
					settings{}.Commands(c, change.State{Data: state, Was: value})
				}
			}
		})
	})
}
