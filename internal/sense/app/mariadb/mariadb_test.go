package mariadb

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/slowlog"
)

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute})
}

func TestOptions(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"etc/mysql/my.cnf":         "[client]\nport=1\n!includedir /etc/mysql/conf.d/\n[mysqld]\nmax_connections = 40 # few\n",
		"etc/mysql/conf.d/50.cnf":  "[mariadb-10.11]\nmax-connections=30\nlong_query_time=\"0.5\"\nslow-query-log\n[mysqldump]\nmax_connections=1\n",
		"etc/mysql/conf.d/no.conf": "[mysqld]\nmax_connections=2\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o := readOptions(enough(), rootfs.At(dir, enough()), []string{"--loose-port", "3307", "--datadir=/data"})
	for name, want := range map[string]observe.Setting{
		"max_connections": {Value: "40", File: "/etc/mysql/my.cnf", Line: 5},
		"long_query_time": {Value: "0.5", File: "/etc/mysql/conf.d/50.cnf", Line: 3},
		"port":            {Value: "3307", File: commandLine},
		"datadir":         {Value: "/data", File: commandLine},
		"nothing":         {Value: "7", Default: true},
	} {
		if got := o.get(name, "7"); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if !on(o.get("slow_query_log", "0")) {
		t.Error("slow-query-log without a value is off")
	}
	if o := readOptions(enough(), rootfs.At(dir, enough()), []string{"--no-defaults"}); len(o.values) != 1 {
		t.Errorf("--no-defaults: %v", o.values)
	}
}

// Written by MariaDB 10.11.19 (Debian 12), November 2026.
const slow = `mariadbd, Version: 10.11.19-MariaDB-0+deb12u1-log (Debian 12). started with:
Tcp port: 33071  Unix socket: /tmp/s
Time		    Id Command	Argument
# Time: 261121 23:59:23
# User@Host: booking[booking] @  [10.1.2.3]
# Thread_id: 4  Schema: t  QC_hit: No
# Query_time: 0.700142  Lock_time: 0.250000  Rows_sent: 1  Rows_examined: 20000
# Rows_affected: 0  Bytes_sent: 67
use ` + "`t`" + `;
SET timestamp=1795305563;
select *
# a remark
from b where id = 7;
# User@Host: root[root] @ localhost []
# Query_time: 2.000188  Lock_time: 0.000000  Rows_sent: 1  Rows_examined: 0
SET timestamp=1795305565;
select sleep(2);
`

func TestSlowLog(t *testing.T) {
	var got []slowlog.Entry
	p := slowParser{emit: func(e slowlog.Entry) { got = append(got, e) }}
	for line := range strings.Lines(slow) {
		p.line([]byte(strings.TrimSuffix(line, "\n")))
	}
	p.flush()
	want := []slowlog.Entry{
		{Statement: "select *", EndNS: 1795305563_500000000 + 700_142_000, SlackNS: 5e8, TookNS: 700_142_000, LockNS: 250e6, Examined: 20000, Sent: 1, Peer: netip.MustParseAddr("10.1.2.3")},
		{Statement: "select sleep(?)", EndNS: 1795305565_500000000 + 2_000_188_000, SlackNS: 5e8, TookNS: 2_000_188_000, Sent: 1},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

func FuzzSlowLog(f *testing.F) {
	f.Add(slow)
	f.Fuzz(func(t *testing.T, text string) {
		p := slowParser{emit: func(e slowlog.Entry) {
			if e.TookNS <= 0 {
				t.Errorf("%+v", e)
			}
		}}
		for line := range strings.SplitSeq(text, "\n") {
			p.line([]byte(line))
		}
		p.flush()
	})
}

func TestErrorLog(t *testing.T) {
	for line, want := range map[string]string{
		"2026-11-21 23:59:25 0 [Warning] Aborted connection 0 to db: 'unconnected' user: 'unauthenticated' host: 'connecting host' (Too many connections)":  KindTooManyConnections,
		"2026-11-21 23:59:25 17 [Warning] Aborted connection 17 to db: 'lab' user: 'booking' host: '10.1.2.3' (Got an error reading communication packets)": KindAbortedConnection,
		"2026-11-21T22:59:25.123456Z 0 [ERROR] [MY-000000] [Server] Can't create a new thread (errno 11)":                                                   KindCannotFork,
		"2026-11-21 23:59:21 0 [Note] mariadbd: ready for connections.":                                                                                     "",
	} {
		second, rest, ok := stamp([]byte(line))
		if !ok || time.Unix(second, 0).Year() != 2026 {
			t.Errorf("%s: no time", line)
		}
		if got := classify(rest); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
