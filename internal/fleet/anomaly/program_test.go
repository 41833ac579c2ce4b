package anomaly

import (
	"fmt"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// A third of the hosts of one service run another version of something; the others of the
// service, and other services on the same hosts, are well.
func TestWhatAProgramIsRunFromExplainsWhatIsSlow(t *testing.T) {
	const same = "shop/web:2@aaaaaaaaaaaa"
	for _, c := range []struct {
		name   string
		differ func(p *fleet.Program, i int)
		want   Component
		text   string
	}{
		{"an image of the same name", func(p *fleet.Program, i int) { p.Image, p.Version = "shop/web:2@bbbbbbbbbbbb", "new" },
			Component{Image, "shop/web:2@bbbbbbbbbbbb"}, "8 of 8 slow endpoints run the image shop/web:2@bbbbbbbbbbbb; of the others 0 of 40."},
		{"an image that hosts call differently", func(p *fleet.Program, i int) {
			p.Image = []string{"shop/web:latest@bbbbbbbbbbbb", "shop/web:2@bbbbbbbbbbbb", "sha256:bbbbbbbbbbbb"}[i/3%3]
		}, Component{Image, "shop/web:2@bbbbbbbbbbbb"}, "8 of 8 slow endpoints run the image shop/web:2@bbbbbbbbbbbb; of the others 0 of 40."},
		{"a configuration", func(p *fleet.Program, i int) { p.Config = "fedcba987654" },
			Component{Config, "web fedcba987654"}, "8 of 8 slow endpoints have web with the configuration fedcba987654; of the others 0 of 40."},
		{"a build", func(p *fleet.Program, i int) { p.Version = "fedcba987654" },
			Component{Build, "web fedcba987654"}, "8 of 8 slow endpoints run the build fedcba987654 of web; of the others 0 of 40."},
		{"each its own configuration", func(p *fleet.Program, i int) { p.Config = fmt.Sprint(i) }, Component{}, ""},
	} {
		var hosts []fleet.Host
		var all []fleet.Key
		var list []Anomaly
		for i := range 24 {
			h := fleet.Host{Name: fmt.Sprintf("node-%02d", i), Addresses: []string{fmt.Sprintf("10.0.3.%d", i)}}
			web := fleet.Program{Image: same, Version: "old", Config: "0123456789ab"}
			if i%3 == 0 {
				c.differ(&web, i)
			}
			h.Programs = map[string]fleet.Program{"web": web, "cache": {Config: "7"}}
			hosts = append(hosts, h)
			for n, service := range []string{"web:8080", "cache:6379"} {
				k := fleet.Key{Host: h.Name, Service: service, Side: observe.Served, Addr: "0.0.0.0", Port: 8080 + n}
				all = append(all, k)
				if n == 0 && i%3 == 0 {
					list = append(list, slowly(k, 9_000, 9_000))
				}
			}
		}
		x := Explain(list, all, Facts{Hosts: hosts})
		switch {
		case c.text == "":
			for _, s := range x.Shared {
				if s.Kind == Config {
					t.Errorf("%s: %s", c.name, s.Text)
				}
			}
		case len(x.Shared) != 1 || x.Shared[0].Component != c.want || x.Text != c.text:
			t.Errorf("%s: %+v %q", c.name, x.Shared, x.Text)
		}
	}
}

// Where all run the same it tells no more than the service, and is not named next to it.
func TestWhatAllRunIsNoComponent(t *testing.T) {
	var hosts []fleet.Host
	for i := range 4 {
		hosts = append(hosts, fleet.Host{Name: fmt.Sprint(i), Programs: map[string]fleet.Program{"web": {Image: "web:1", Config: "a"}}})
	}
	if list := programs(hosts); len(list) > 0 {
		t.Errorf("%v", list)
	}
	for i := range 2 { // a newer slowray tells the digest
		hosts[i].Programs["web"] = fleet.Program{Image: "web:1@aaaaaaaaaaaa", Config: "a"}
	}
	if list := programs(hosts); len(list) > 0 {
		t.Errorf("one image, of which some hosts tell the digest: %v", list)
	}
}
