package nginx

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// maxLimits bounds the list.
const maxLimits = 256

// defaultLimitStatus is that of limit_req_status and limit_conn_status.
const defaultLimitStatus = "503"

// limits lists where requests or connections are limited, with the zones that
// say by what and how much.
func (c *config) limits() []observe.NginxLimit {
	var out []observe.NginxLimit
	for _, top := range c.main {
		if top.name == "http" {
			zones := map[string]*directive{}
			for _, d := range top.block {
				if d.name == "limit_req_zone" || d.name == "limit_conn_zone" {
					if name := zoneName(d); name != "" {
						zones[d.name+"|"+name] = d
					}
				}
			}
			limitsIn(top.block, zones, map[string]observe.Setting{}, &out)
		}
	}
	return out
}

// zoneName is NAME of "zone=NAME:10m".
func zoneName(d *directive) string {
	for _, a := range d.args {
		if v, ok := strings.CutPrefix(a, "zone="); ok {
			name, _, _ := strings.Cut(v, ":")
			return name
		}
	}
	return ""
}

func limitsIn(ds []*directive, zones map[string]*directive, above map[string]observe.Setting, out *[]observe.NginxLimit) {
	status := map[string]observe.Setting{}
	for _, kind := range []string{"req", "conn"} {
		status[kind] = observe.Setting{Value: defaultLimitStatus, Default: true}
		if s, ok := above[kind]; ok {
			status[kind] = s
		}
		if d := find(ds, "limit_"+kind+"_status"); d != nil {
			status[kind] = setting(d, defaultLimitStatus)
		}
	}
	for _, d := range ds {
		kind, ok := strings.CutPrefix(d.name, "limit_")
		if ok && (kind == "req" || kind == "conn") && len(d.args) > 0 && len(*out) < maxLimits {
			l := observe.NginxLimit{Kind: kind, Status: status[kind], File: d.file, Line: d.line}
			if kind == "conn" {
				l.Zone, l.Rate = d.args[0], d.arg(1)
			} else {
				l.Zone = zoneName(d)
				for _, a := range d.args {
					if v, ok := strings.CutPrefix(a, "burst="); ok {
						l.Burst = v
					}
				}
			}
			if z := zones["limit_"+kind+"_zone|"+l.Zone]; z != nil {
				l.Key, l.Zoned = z.arg(0), fmt.Sprintf("%s:%d", z.file, z.line)
				for _, a := range z.args {
					if v, ok := strings.CutPrefix(a, "rate="); ok {
						l.Rate = v
					}
				}
			}
			*out = append(*out, l)
		}
		switch d.name {
		case "server", "location", "if":
			limitsIn(d.block, zones, status, out)
		}
	}
}
