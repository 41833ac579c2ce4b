package bpf

import (
	"strconv"
	"strings"
	"testing"
)

// FuzzID reads the number of a tracepoint.
func FuzzID(f *testing.F) {
	f.Add([]byte("314\n"))
	f.Add([]byte("-1"))
	f.Add([]byte("18446744073709551616"))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, err := parseID(data)
		if err == nil && strings.TrimLeft(strings.TrimSpace(string(data)), "0") != strings.TrimLeft(strconv.FormatUint(id, 10), "0") {
			t.Errorf("%q is %d", data, id)
		}
	})
}
