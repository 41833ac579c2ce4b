package report

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// TestFindingChain: a chain of waits stands under its finding, one thread under
// the other, and what a process calls itself cannot drive the terminal.
func TestFindingChain(t *testing.T) {
	f := cause.Finding{
		Cause: "blocked-on-pipe", Title: "Requests wait for a write", Role: cause.RoleCause, Subject: cause.Subject{Kind: "process", PID: 900, Comm: "python3"},
		Impact: cause.Impact{Share: 1, Of: "slow time", Text: "all of it"}, Fix: cause.Fix{Text: "Fix the reader.", Commands: []shell.Command{}},
		Chain: []observe.WaitHop{
			{Process: observe.WaitProcess{PID: 900, Comm: "python3"}, TID: 901, Comm: "python3", Syscall: "write", Kind: observe.WaitPipe,
				Wants: observe.WantsRoom, Object: "fd 5 → pipe:[1234]", ForNS: 5e9},
			{Process: observe.WaitProcess{PID: 950, Comm: "re\x1b[2Jader"}, TID: 950, Comm: "reader", Syscall: "clock_nanosleep", Kind: observe.WaitSleep,
				How: observe.HowPeer, Why: "has the other end, and does not read"},
		},
		ChainEnd: "sleeps for a time that it chose itself",
	}
	var b strings.Builder
	if err := Text(&b, &diagnose.Report{Findings: []cause.Finding{f}}, Style{Width: 100, All: true}); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"   chain     python3 900/901  write fd 5 → pipe:[1234], at least 5 s\n" +
		"             re\uFFFD[2Jader 950   has the other end, and does not read [peer of the fd]\n" +
		"                              clock_nanosleep\n" +
		"             end              sleeps for a time that it chose itself\n" +
		"   fix       Fix the reader.\n"
	if !strings.Contains(b.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := Text(&b, &diagnose.Report{Findings: []cause.Finding{f}}, Style{Width: 100}); err != nil {
		t.Fatal(err)
	}
	if want := "   evidence  python3 900/901 → re\uFFFD[2Jader 950: sleeps for a time that it chose itself\n"; !strings.Contains(b.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
