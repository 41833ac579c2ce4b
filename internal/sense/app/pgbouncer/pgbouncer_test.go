package pgbouncer

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

const example = `;; a comment
[databases]
shop = host=10.0.0.7 port=5432 dbname=shop pool_size=5
* = host=10.0.0.8

[pgbouncer]
listen_port = 6543
pool_mode = transaction
default_pool_size = 2 
# default_pool_size = 40
%include /more.ini
`

func TestPools(t *testing.T) {
	fake := proctest.NewFake(t)
	procs := fake.Process(t, "pgbouncer", "pgbouncer\x00-d\x00-u\x00postgres\x00/p.ini\x00", "")
	fake.File(t, "p.ini", example)
	fake.File(t, "more.ini", "max_client_conn = 500\n")
	found := Discover(procs, fake.Proc)
	if len(found) != 1 {
		t.Fatalf("%d found", len(found))
	}
	in := found[0]
	in.Begin(budget.New(context.Background(), budget.Limits{}))
	out, gaps, _ := in.End(budget.New(context.Background(), budget.Limits{}), observe.Window{})
	if len(gaps) > 0 {
		t.Error(gaps)
	}
	listens := []observe.AppListen{{Port: 6543}}
	want := []observe.WorkerPool{
		{Knob: "default_pool_size", Limit: 2, Listens: listens, Setting: observe.Setting{Value: "2", File: "/p.ini", Line: 9}},
		{Name: "shop", Knob: "pool_size", Limit: 5, Listens: listens, Setting: observe.Setting{Value: "5", File: "/p.ini", Line: 3}},
	}
	if diff := cmp.Diff(want, out.Pools); diff != "" || out.Model != "transaction" || out.Config != "/p.ini" {
		t.Errorf("%s %s %s", diff, out.Model, out.Config)
	}
}

// FuzzServer reads the command line and the configuration of a process that calls itself
// pgbouncer.
func FuzzServer(f *testing.F) {
	f.Add("pgbouncer\x00/p.ini\x00", example)
	f.Add("pgbouncer\x00-u\x00", "[databases]\n%include /p.ini\nx=pool_size=\n=\n[pgbouncer\ndefault_pool_size=99999999999999999999")
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, cmdline, conf string) {
		procs := fake.Process(t, "pgbouncer", cmdline, "")
		fake.File(t, "p.ini", conf)
		budgettest.Within(t, len(cmdline)+9*len(conf), budgettest.Cost{PerByte: 4096, Fixed: 4 << 20, CPU: budgettest.Usual.CPU}, func() {
			for _, in := range Discover(procs, fake.Proc) {
				in.Begin(budget.New(context.Background(), budget.Limits{}))
				in.Close()
				out, gaps, _ := in.End(budget.New(context.Background(), budget.Limits{}), observe.Window{})
				proctest.Check(t, out, gaps)
			}
		})
	})
}
