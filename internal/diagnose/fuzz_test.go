package diagnose

import (
	"encoding/json"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// FuzzDiagnose judges observations that no slowray wrote: damaged, made by
// hand, or hostile. It must never panic, and its report must be writable.
func FuzzDiagnose(f *testing.F) {
	f.Add([]byte(`{"window":{"seconds":8},"profile":{"samples":9,"processes":[{"pid":1,"samples":90,"port_search":80}]},"connects":[{"pid":1,"netns":7,"family":"inet","addr":"::1","port":80,"calls":3,"errors":{"EADDRNOTAVAIL":2}}],"namespaces":[{"inode":7,"sysctl":{"net.ipv4.ip_local_port_range":"1 2"},"sockets":[{"side":"called","remote":"::1","port":80,"local_ports":2,"states":{"TIME_WAIT":900}}],"listeners":[{"proto":"tcp","port":80,"opened":1,"pid":1}]}],"processes":[{"pid":1,"ppid":1}]}`))
	f.Add([]byte(`{"namespaces":[{"listeners":[{"port":-1},{"proto":"unix"}]}],"nginx":[{}],"php_fpm":[{"pools":[{}]}]}`))
	f.Add([]byte(`{"window":{"seconds":-1},"namespaces":[{"inode":1,"conntrack":{"drop":18446744073709551615},"listeners":[{"port":1,"opened":18446744073709551615,"queue_peak":1}]}]}`))
	for _, o := range []*observe.Observation{chain(), {Endpoints: []observe.Endpoint{endpoint("served", 80, 1, 200,
		map[string]int64{"send_wait": 900 * ms, "upload": 50 * ms}, "zero_window", "nagle", "upload_acks", "timeout", "send_buffer")}}} {
		text, err := json.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var o observe.Observation
		if json.Unmarshal(text, &o) != nil {
			return
		}
		r := judge(&o)
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		for _, fd := range r.Findings {
			if fd.Impact.Share < 0 || fd.Impact.Share > 1 {
				t.Fatalf("%s: share %v", fd.Cause, fd.Impact.Share)
			}
		}
	})
}
