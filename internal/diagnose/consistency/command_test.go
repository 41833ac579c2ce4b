package consistency

import (
	"testing"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/shell"
)

// TestEntersMounts: no command runs a program where its owner has put it; one of the
// host's may run in a network namespace, with whatever flags it has.
func TestEntersMounts(t *testing.T) {
	for _, c := range []struct {
		command shell.Command
		enters  bool
	}{
		{shell.Line("nsenter --net=/proc/7/ns/net nft -a list ruleset"), false},
		{shell.Line("nsenter --net=/proc/7/ns/net ss -am"), false},
		{shell.Line("nsenter --all --target %s psql", 7), true},
		{shell.Line("nsenter --mount --target %s mariadb", 7), true},
		{shell.Line("nsenter --target %s --net --mount mariadb", 7), true},
		{shell.Line("nsenter -t %s -m mariadb", 7), true},
	} {
		f := cause.Finding{Cause: cause.MariaDBSlowQuery, Fix: cause.Fix{Commands: []shell.Command{c.command}}}
		if got := Check(&diagnose.Report{Findings: []cause.Finding{f}}); (len(got) > 0) != c.enters {
			t.Errorf("%s: %q", c.command, got)
		}
	}
}
