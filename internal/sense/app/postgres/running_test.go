package postgres

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// memory is that of backends: a pointer at 100, and texts.
func memory(pointer uint64, text string) procmem.Reader {
	return func(_ int, addr uint64, into []byte) (int, error) {
		if addr == 100 {
			return copy(into, binary.LittleEndian.AppendUint64(nil, pointer)), nil
		}
		return copy(into, text), nil
	}
}

func TestRunningStatements(t *testing.T) {
	r := &running{at: 100, seen: map[string]int{}}
	for range 3 {
		r.read = memory(5000, "SELECT name FROM guests WHERE id = 42 AND name = 'Doe'\x00SELECT 7")
		r.look(1)
	}
	r.read = memory(0, "never")
	r.look(2)
	r.read = memory(6000, "UPDATE seats SET taken = 1 WHERE n = 17\x00")
	r.look(3)
	want := []observe.RunningStatement{{Statement: "SELECT name FROM guests WHERE id = ? AND name = ?", Rounds: 3}, {Statement: "UPDATE seats SET taken = ? WHERE n = ?", Rounds: 1}}
	if diff := cmp.Diff(want, r.told()); diff != "" {
		t.Error(diff)
	}
	(&running{}).look(1) // without a pointer nothing is read
}

func TestPointerInPostgres(t *testing.T) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		t.Skip("postgresql is not installed: the address of debug_query_string is NOT tested")
	}
	f, err := os.Open(found[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at, err := pointerIn(budget.New(context.Background(), budget.Limits{}), f, 0x1000)
	if err != nil || at <= 0x1000 {
		t.Errorf("%#x, %v", at, err)
	}
}
