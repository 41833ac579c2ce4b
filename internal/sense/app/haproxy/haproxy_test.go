package haproxy

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
	"github.com/slowray/slowray/internal/sense/app/pool"
)

const cfg = `global
	maxconn 2000 # of all
	stats socket /run/haproxy.sock mode 600
defaults
	mode http
	backlog 300
frontend shop
	bind *:80,[::]:8080
	bind /run/shop.sock
	maxconn 100
	use_backend api if { path /api }
	default_backend engines
backend engines
	default-server maxconn 7
	server e1 10.0.0.1:8080 check maxconn 5
	server e2 10.0.0.2:8080 check
backend api
	server "a 1" api.example:81
listen direct
	bind :90
	server d1 127.0.0.1:91 maxconn 3
`

func TestConfiguration(t *testing.T) {
	in := &pool.Instance{}
	c := &config{in: in, b: enough()}
	c.parse("/h.cfg", cfg, true)
	c.fill()
	at := func(v string, line int) observe.Setting { return observe.Setting{Value: v, File: "/h.cfg", Line: line} }
	backlog := at("300", 6)
	want := []observe.WorkerPool{
		{Name: "shop", Knob: "maxconn", Limit: 100, Setting: at("100", 10), PerConn: true,
			Listens: []observe.AppListen{{Addr: "*", Port: 80, Backlog: backlog}, {Addr: "::", Port: 8080, Backlog: backlog}, {Path: "/run/shop.sock", Backlog: backlog}}},
		{Name: "direct", Knob: "maxconn of global", Limit: 2000, Setting: at("2000", 2), PerConn: true, Listens: []observe.AppListen{{Port: 90, Backlog: backlog}}},
	}
	if d := cmp.Diff(want, in.Out.Pools); d != "" {
		t.Error(d)
	}
	backends := []observe.ProxyBackend{
		{Backend: "engines", Server: "e1", Addr: "10.0.0.1:8080", MaxConn: at("5", 15), Frontends: []string{"shop"}},
		{Backend: "engines", Server: "e2", Addr: "10.0.0.2:8080", MaxConn: at("7", 14), Frontends: []string{"shop"}},
		{Backend: "api", Server: "a 1", Addr: "api.example:81", Frontends: []string{"shop"}},
		{Backend: "direct", Server: "d1", Addr: "127.0.0.1:91", MaxConn: at("3", 21), Frontends: []string{"direct"}},
	}
	if d := cmp.Diff(backends, in.Out.Backends); d != "" {
		t.Error(d)
	}
	if c.socket != "/run/haproxy.sock" {
		t.Error(c.socket)
	}
}

func TestStatistics(t *testing.T) {
	rows, err := parseStat(enough(), strings.NewReader("# pxname,svname,qcur,qmax,scur,smax,slim,status,\nshop,FRONTEND,,,10,10,10,OPEN,\nengines,e1,36,40,4,4,4,no check,\n\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []row{{proxy: "shop", server: "FRONTEND", state: "OPEN", current: 10, limit: 10}, {proxy: "engines", server: "e1", state: "no check", current: 4, limit: 4, queue: 36}}
	if d := cmp.Diff(want, rows, cmp.AllowUnexported(row{})); d != "" {
		t.Error(d)
	}
	if _, err := parseStat(enough(), strings.NewReader("Permission denied\n")); err == nil {
		t.Error("what is no table was taken for one")
	}
}

func TestArguments(t *testing.T) {
	got := configFiles([]string{"haproxy", "-Ws", "-f", "/a.cfg", "-p", "/pid", "-f/b", "-sf", "12", "-f", "/c"})
	if d := cmp.Diff([]string{"/a.cfg", "/b"}, got); d != "" {
		t.Error(d)
	}
}

// FuzzServer reads the command line and the configuration of a process that calls itself
// HAProxy, what its socket answers, and a line of its log.
func FuzzServer(f *testing.F) {
	f.Add("haproxy\x00-Ws\x00-f\x00/h.cfg\x00-p\x00/pid\x00", cfg, "# pxname,svname,qcur,qmax,scur,smax,slim,status,\nshop,FRONTEND,,,10,10,10,OPEN,\n", "<134>Nov 22 00:00:00 haproxy[7]: Proxy shop reached process FD limit")
	f.Add("haproxy\x00-f/\x00--\x00h.cfg\x00h.cfg", "defaults\n maxconn 9223372036854775807\nlisten x\n bind :99999,[::]:-1 maxconn 1\n server a :0 maxconn -1\nglobal\n stats socket \\", "# pxname,svname\n\",", "")
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, cmdline, conf, said, line string) {
		procs := fake.Process(t, "haproxy", cmdline, "")
		fake.File(t, "h.cfg", conf)
		budgettest.Within(t, len(cmdline)+len(conf)+len(said), budgettest.Cost{PerByte: 4096, Fixed: 4 << 20, CPU: budgettest.Usual.CPU}, func() {
			for _, in := range Discover(procs, fake.Proc) {
				in.Begin(budget.New(context.Background(), budget.Limits{}))
				in.Close()
				out, gaps, _ := in.End(budget.New(context.Background(), budget.Limits{}), observe.Window{})
				proctest.Check(t, out, gaps)
			}
			_, _ = parseStat(enough(), strings.NewReader(said))
			classify([]byte(line))
		})
	})
}

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute, Bytes: 1 << 30})
}
