package apache

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/pool"
)

func read(t *testing.T, mpm string, files map[string]string) *parser {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := enough()
	c := &parser{b: b, in: &pool.Instance{Root: rootfs.At(dir, b), Budget: b, ProcRoot: dir}, root: "/etc/apache2", defines: map[string]string{}, values: map[string]value{},
		modules: map[string]bool{"mpm_" + mpm + "_module": true}}
	c.file("/etc/apache2/apache2.conf", 0)
	return c
}

// debian is the layout of Debian's packages.
var debian = map[string]string{
	"etc/apache2/apache2.conf": "Define LOGS /var/log/apache2\nErrorLog ${LOGS}/error.log\nInclude ports.conf\nIncludeOptional mods-enabled/*.conf\nIncludeOptional none/*.conf\n",
	"etc/apache2/ports.conf":   "Listen 80\n<IfModule ssl_module>\n\tListen 443\n</IfModule>\n<IfModule !mod_gnutls.x>\n\tListen [::]:8080 http\n</IfModule>\n",
	"etc/apache2/mods-enabled/mpm.conf": "<IfModule mpm_prefork_module>\n\tMaxRequestWorkers   150\n\tServerLimit 20 # comment\n</IfModule>\n" +
		"<IfModule mpm_event_module>\n\tThreadsPerChild 25\n\tMaxRequestWorkers \\\n\t\t50\n</IfModule>\n<VirtualHost *:80>\n\tErrorLog /other\n</VirtualHost>\n",
}

func TestConfiguration(t *testing.T) {
	const file = "/etc/apache2/mods-enabled/mpm.conf"
	listens := []observe.AppListen{{Port: 80}, {Addr: "::", Port: 8080}}
	for i := range listens {
		listens[i].Backlog = observe.Setting{Value: "511", Default: true}
	}
	for mpm, want := range map[string]observe.WorkerPool{
		"prefork": {Name: "workers", Knob: "ServerLimit", Limit: 20, Ceiling: 20, Setting: observe.Setting{Value: "20", File: file, Line: 3}, Threads: 2, PerConn: true, Listens: listens},
		"event":   {Name: "workers", Knob: "MaxRequestWorkers", Limit: 50, Ceiling: 400, Setting: observe.Setting{Value: "50", File: file, Line: 7}, Threads: 25, Listens: listens},
		"worker":  {Name: "workers", Knob: "MaxRequestWorkers", Limit: 400, Ceiling: 400, Setting: observe.Setting{Value: "400", Default: true}, Threads: 25, PerConn: true, Listens: listens},
	} {
		c := read(t, mpm, debian)
		if d := cmp.Diff(want, c.workers(mpm)); d != "" {
			t.Errorf("%s: %s", mpm, d)
		}
		if got := c.values["errorlog"].text; got != "/var/log/apache2/error.log" {
			t.Errorf("error log %q", got)
		}
	}
}

// TestHostileConfiguration: files that include themselves and brackets that do
// not match end.
func TestHostileConfiguration(t *testing.T) {
	c := read(t, "prefork", map[string]string{"etc/apache2/apache2.conf": "Include apache2.conf\n</IfModule>\n<\n<IfModule\nMaxRequestWorkers x\n${\n\"\\"})
	if got := c.workers("prefork").Limit; got != 256 {
		t.Errorf("limit %d", got)
	}
}

func TestClassify(t *testing.T) {
	for line, want := range map[string]string{
		"[Sat Nov 21 23:59:53.209604 2026] [mpm_prefork:error] [pid 21312:tid 21312] AH00161: server reached MaxRequestWorkers setting, consider raising": KindMaxWorkers,
		"[Sat Nov 21 23:59:53.2 2026] [mpm_event:error] [pid 1:tid 2] AH10159: server is within MinSpareThreads of MaxRequestWorkers":                     KindNearLimit,
		"[Sat Nov 21 23:59:53.2 2026] [proxy:error] [pid 1:tid 2] (111)Connection refused: AH00957: http: attempt to connect":                             "",
		"[Sat Nov 21 23:59:53.2 2026] [core:error] [pid 1] [client 1.2.3.4:5] AH00126: Invalid URI in request GET /AH00161":                               "",
		"AH00161":   "",
		"] AH00":    "",
		"":          "",
		"[x] AH001": "",
	} {
		if got, _ := classify([]byte(line)); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
}

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute, Bytes: 1 << 30})
}
