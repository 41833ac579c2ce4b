package cause

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/changes.txt anew")

// changesFile has, for each fixture in which a cause is found, and for each
// service of the healthy one, what it would be proved by.
const changesFile = "testdata/changes.txt"

func allFiring() []fires {
	return slices.Concat(firing, firingOnRequests, firingOnWaits, firingOnCPU, firingOnTransport, firingOnNames, firingOnLocks, firingOnLacks(), firingOnKernelWaits(), firingOnTracer, firingOnDatabases, firingOnKernelWork(), firingOnMachine())
}

// TestChanges: what is proposed to prove a cause is what is written down.
func TestChanges(t *testing.T) {
	var b strings.Builder
	for _, c := range Catalogue() {
		if c.Try == nil {
			continue
		}
		fmt.Fprintf(&b, "%s\n", c.ID)
		for _, f := range allFiring() {
			if f.cause.ID != c.ID {
				continue
			}
			o := healthy()
			f.plant(o)
			v := NewView(o)
			for i, found := range f.cause.Check(v).Findings {
				s := found.Subject
				changes := c.Changes(v, Target{Finding: &found, Service: v.ServiceAt(s.NetNS, s.Port, s.Path)})
				for _, change := range changes {
					sound(t, f.name, &change)
				}
				if i == 0 {
					list(&b, "found: "+f.name, changes)
				}
			}
		}
		v := NewView(healthy())
		for _, s := range v.Services {
			list(&b, "not found, on "+s.Name(), c.Changes(v, Target{Service: s}))
		}
	}
	if *update {
		if err := os.WriteFile(changesFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(changesFile)
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(wanted)) {
		if i >= len(got) || i >= len(wanted) || got[i] != wanted[i] {
			t.Fatalf("line %d of %s is not what is proposed (go test -run TestChanges -update writes it anew):\ngot  %q\nwant %q",
				i+1, changesFile, strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""), strings.Join(wanted[min(i, len(wanted)):min(i+1, len(wanted))], ""))
		}
	}
}

func list(b *strings.Builder, of string, changes []Change) {
	fmt.Fprintf(b, "  %s\n", of)
	for i := range changes {
		fmt.Fprintf(b, "    %s: %s\n", changes[i].Kind, changes[i].Text)
	}
	if len(changes) == 0 {
		b.WriteString("    nothing to try\n")
	}
}

// sound checks that a change has what its kind needs.
func sound(t *testing.T, of string, c *Change) {
	t.Helper()
	missing := ""
	need := func(ok bool, what string) {
		if !ok {
			missing += " " + what
		}
	}
	need(c.Text != "" && !strings.ContainsAny(c.Text, "\n"), "text")
	need(c.Value != c.Was || c.Value == "", "another value")
	switch c.Kind {
	case ChangeSysctl:
		need(c.Name != "" && c.Value != "", "name and value")
		need((c.NetNS == 0) == (c.PID == 0), "namespace with a process in it")
	case ChangeBacklog:
		need(c.PID != 0 && (c.Path != "" || c.Port != 0 && c.NetNS != 0), "socket")
	case ChangeSocketOption:
		need(c.PID != 0 && c.Name != "" && c.Value != "" && (c.Side == "" || c.Side == "served" || c.Side == "called"), "socket and option")
	case ChangeRlimit:
		need(c.PID != 0 && c.Name != "" && c.Value != "", "process and limit")
	case ChangePipeSize:
		need(c.PID != 0 && c.FD >= 0 && c.Value != "", "pipe")
	case ChangeCgroup:
		need(strings.HasPrefix(c.Path, "/") && c.Name != "" && !strings.Contains(c.Name, "/") && c.Value != "", "file of a group")
	case ChangeQdisc:
		need(c.Interface != "" && c.NetNS != 0 && c.Name != "", "queueing discipline")
	case ChangeFilter:
		need(c.Interface != "" && c.NetNS != 0 && c.Rule != nil, "filter")
	case ChangeRule:
		need(c.NetNS != 0 && c.Rule != nil && c.Rule.Tool != "" && c.Rule.Text != "", "rule")
	case ChangeMTU:
		need(c.Interface != "" && c.NetNS != 0 && c.Value != "", "interface")
	case ChangeAffinity, ChangeNice, ChangeContinue:
		need(c.PID != 0 && c.Value != "", "process")
	case ChangeFile:
		need(strings.HasPrefix(c.Path, "/") && c.Value != "", "file")
	case ChangeConfig:
		need(c.PID != 0 && c.Server != "" && c.Name != "" && c.Value != "" && strings.HasPrefix(c.Path, "/"), "directive")
	case ChangeSetting:
		need(c.PID != 0 && c.Server != "" && c.Name != "" && c.Value != "" && (c.Port != 0 || c.Path != ""), "setting")
	default:
		t.Errorf("%s: no such kind of change: %q", of, c.Kind)
	}
	if missing != "" {
		t.Errorf("%s: %s lacks%s: %+v", of, c.Kind, missing, c)
	}
}
