package cause

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

func TestCommandsNameNoDeadProcess(t *testing.T) {
	v := NewView(&observe.Observation{Processes: []observe.Process{{PID: 4711, Comm: "php"}, {PID: 4712, Comm: "php", EndedIn: true}}})
	f := Finding{Subject: Subject{PID: 4712}, Fix: Fix{
		Commands: []shell.Command{shell.Line("kill -CONT %s", 4712), shell.Line("kill -CONT %s", 4711), shell.Line("slowray wait %s", 4712),
			shell.Line("cat /proc/%s/status", 4712), shell.Line("psql -h /run -p %s", 4712), shell.Line("nsenter --net=/proc/%s/ns/net ss -tn", 4712),
			shell.Line("chrt --all-tasks --other --pid 0 %s", 4712), shell.Line("nginx -s reload   # pid %s is gone", 4712)},
	}}
	v.LeaveOutDead(&f)
	var got []string
	for _, c := range f.Fix.Commands {
		got = append(got, c.String())
	}
	want := []string{"kill -CONT 4711", "psql -h /run -p 4712", "nginx -s reload   # pid 4712 is gone"}
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}
