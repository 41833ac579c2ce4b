package apache

import (
	"context"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

// FuzzServer reads the command line, the environment, the memory map and two files of
// the configuration of a process that calls itself httpd, and a line of its log.
func FuzzServer(f *testing.F) {
	f.Add("apache2\x00-d\x00/etc/apache2\x00-k\x00start\x00", "LANG=C\x00", "7f00 r-xp 0 8:1 9 /usr/lib/apache2/modules/mod_mpm_prefork.so\n",
		debian["etc/apache2/apache2.conf"]+"Include a.conf\n", debian["etc/apache2/mods-enabled/mpm.conf"]+debian["etc/apache2/ports.conf"],
		"[Sat Nov 21 23:59:53.2 2026] [mpm_event:error] [pid 1:tid 2] AH10159: server is within MinSpareThreads of MaxRequestWorkers")
	f.Add("httpd\x00-f/etc/apache2/a.conf\x00-DA\x00", "A=${A}\x00", "", "", "Define A ${A}${A}\nDefine A ${A}${A}\nInclude a.conf\nInclude *\nListen ${A}\n<IfDefine !A>\n</If", "] AH")
	f.Add("httpd\x00-DA\x00-d", "", "mod_mpm_event.so", "ThreadsPerChild 9223372036854775807\nServerLimit 9223372036854775807\nListen [::]:99999\nListen -1", "", "")
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, cmdline, environ, maps, conf, included, line string) {
		procs := fake.Process(t, "apache2", cmdline, environ)
		fake.Procfs(t, "maps", maps)
		fake.File(t, "etc/apache2/apache2.conf", conf)
		fake.File(t, "etc/apache2/a.conf", included)
		n := len(cmdline) + len(environ) + len(maps) + len(conf) + len(included)
		budgettest.Within(t, n, budgettest.Cost{PerByte: 4096, Fixed: 4<<20 + int(budget.Default.Unpacked), CPU: budgettest.Usual.CPU}, func() {
			for _, in := range Discover(procs, fake.Proc) {
				in.Begin(budget.New(context.Background(), budget.Limits{}))
				in.Close()
				out, gaps, _ := in.End(budget.New(context.Background(), budget.Limits{}), observe.Window{})
				proctest.Check(t, out, gaps)
			}
			classify([]byte(line))
		})
	})
}
