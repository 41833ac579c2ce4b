package change

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/cause"
)

// hot are the kinds that this package makes by itself.
var hot = []cause.ChangeKind{
	cause.ChangeSysctl, cause.ChangeBacklog, cause.ChangeSocketOption, cause.ChangeRlimit, cause.ChangePipeSize,
	cause.ChangeCgroup, cause.ChangeQdisc, cause.ChangeFilter, cause.ChangeRule, cause.ChangeMTU,
	cause.ChangeAffinity, cause.ChangeNice, cause.ChangeContinue, cause.ChangeFile,
}

func TestEveryKindHasADoer(t *testing.T) {
	if have := slices.Sorted(maps.Keys(doers)); !slices.Equal(have, slices.Sorted(slices.Values(hot))) {
		t.Errorf("doers are %q, not %q", have, hot)
	}
	if _, err := For("none"); err == nil {
		t.Error("a kind that is none has a doer")
	}
}

// What is empty, or comes from a journal that was damaged, gives one line and
// never a panic.
func TestBadInput(t *testing.T) {
	empty, _ := json.Marshal(envelope{BootID(), json.RawMessage(`{}`)})
	list, _ := json.Marshal(envelope{BootID(), json.RawMessage(`[]`)})
	for _, kind := range hot {
		c := &cause.Change{Kind: kind}
		d, err := For(kind)
		must(t, err)
		if _, err := d.Prepare(c); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: prepare nothing: %v", kind, err)
		}
		for _, data := range []string{"", "{", "[]", `{"boot":7}`, string(list)} {
			was := State{Data: json.RawMessage(data)}
			if ok, gone, _, err := d.Holds(c, was); ok || gone || err == nil {
				t.Errorf("%s: holds of %q: %v %v %v", kind, data, ok, gone, err)
			}
			if err := d.Undo(c, was); err == nil {
				t.Errorf("%s: undo of %q says nothing", kind, data)
			}
			d.Commands(c, was)
		}
		was := State{Data: empty}
		if ok, _, _, _ := d.Holds(c, was); ok {
			t.Errorf("%s: holds of nothing", kind)
		}
		_ = d.Undo(c, was)
		if err := d.Apply(c, was); err == nil {
			t.Errorf("%s: apply of nothing says nothing", kind)
		}
	}
}
