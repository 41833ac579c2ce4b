package cause

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// TestClientsAreTheHosts: a server in a container is asked by the host's own client, in
// its network namespace; its mounts are never entered.
func TestClientsAreTheHosts(t *testing.T) {
	o := &observe.Observation{Namespaces: []observe.NetNS{{Inode: 7, PID: 70}}}
	v := NewView(o)
	server := observe.Database{PID: 70, NetNS: 7, Kind: "postgresql", User: "postgres", Sockets: []string{"/run/pg/.s.PGSQL.5433"}, Ports: []int{5433}}
	for _, c := range []struct {
		change func(*observe.Database)
		want   string
	}{
		{func(*observe.Database) {}, "runuser -u postgres -- psql -h /run/pg -p 5433 -c x"},
		{func(d *observe.Database) { d.Container = "abc" }, "nsenter --net=/proc/70/ns/net psql -h 127.0.0.1 -p 5433 -U postgres -c x"},
		{func(d *observe.Database) { d.Root = "/proc/70/root" }, "nsenter --net=/proc/70/ns/net psql -h 127.0.0.1 -p 5433 -U postgres -c x"},
		{func(d *observe.Database) { d.Container, d.Ports = "abc", nil }, "# postgresql (pid 70) listens at unix sockets in a mount namespace"},
	} {
		d := server
		c.change(&d)
		if got := v.psql(&d, shell.Line("-c x")).String(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
