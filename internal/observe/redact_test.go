package observe

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	o := sample()
	o.Host = Host{Name: "secret-host", BootID: "b", NetNS: 4026531833}
	o.Namespaces[0].Inode = 1<<63 + 1 // must not go through a float
	o.Namespaces[0].Addrs = []string{"10.1.2.3", "fd00::7"}
	o.Namespaces[0].Listeners = []Listener{{Addr: "127.0.0.1", Port: 80}, {Addr: "0.0.0.0"}, {Addr: "::1"}, {Path: "/run/php.sock"}}
	o.Connects = []Connect{{Comm: "nginx", Addr: "10.1.2.3", Port: 9000}, {Addr: "fd00::7"}}
	o.Processes = []Process{{Comm: "curl", Cmdline: "curl -u me:password"}}
	o.Nginx = []Nginx{{Upstreams: []NginxUpstream{{Servers: []string{"10.1.2.3:9000", "[fd00::7]:80", "8.8.4.4:1"}}},
		Errors: []LogKind{{Kind: "other-error", Upstream: "10.1.2.3:9000", Example: "GET /?token=1"}}}}
	o.Endpoints = []Endpoint{{Side: "called", Addr: "10.1.2.3", Port: 9000, Comm: "nginx", Requests: 7,
		Peers:   []PeerStats{{Addr: "fd00::7", Requests: 7}, {Addr: "127.0.0.1"}},
		Slowest: []RequestSample{{Local: "10.1.2.3:40000", Peer: "[fd00::7]:80", Label: "GET /?token=1", TotalNS: 5}},
		Failed:  []RequestSample{{Local: "[::1]:80", Peer: "8.8.4.4:1", Label: "SELECT 'password'"}}}}
	o.Endpoints[0].Total.Add(1e6)

	r, err := Redact(o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"secret-host", "10.1.2.3", "fd00::7", "8.8.4.4", "password", "token"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%q is still there: %s", secret, text)
		}
	}
	if r.Namespaces[0].Inode != 1<<63+1 || r.Namespaces[0].Listeners[0].Addr != "127.0.0.1" || r.Namespaces[0].Listeners[1].Addr != "0.0.0.0" ||
		r.Namespaces[0].Listeners[2].Addr != "::1" || r.Namespaces[0].Listeners[3].Path != "/run/php.sock" {
		t.Errorf("changed what should stay: %+v", r.Namespaces[0])
	}
	if a := r.Namespaces[0].Addrs[0]; a != r.Connects[0].Addr || r.Nginx[0].Upstreams[0].Servers[0] != a+":9000" || r.Nginx[0].Errors[0].Upstream != a+":9000" {
		t.Errorf("one address became several: %s", text)
	}
	e := &r.Endpoints[0]
	if a := r.Namespaces[0].Addrs; e.Addr != a[0] || e.Peers[0].Addr != a[1] || e.Peers[1].Addr != "127.0.0.1" ||
		e.Slowest[0].Local != a[0]+":40000" || e.Slowest[0].Peer != "["+a[1]+"]:80" || e.Failed[0].Local != "[::1]:80" {
		t.Errorf("addresses of requests: %s", text)
	}
	if e.Comm != "nginx" || e.Requests != 7 || e.Slowest[0].TotalNS != 5 || e.Total.Count() != 1 {
		t.Errorf("figures of requests changed: %+v", e)
	}
	if e.Slowest[0].Label != "" || e.Failed[0].Label != "" {
		t.Errorf("labels are still there: %s", text)
	}
	if o.Connects[0].Addr != "10.1.2.3" || o.Processes[0].Cmdline == "" {
		t.Error("the original was changed")
	}
}
