package observe

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzRedact redacts any Observation: an address that was in it is not in it any more,
// wherever it stood, and what is redacted is the same when it is redacted again.
func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"schema":"slowray.observation/2","host":{"name":"db-7"},"endpoints":[{"addr":"10.1.2.3","comm":"a 10.1.2.3:80 b"}]}`), "10.1.2.3")
	f.Add([]byte(`{"containers":[{"labels":{"10.1.2.3":"x"}}]}`), "2001:db9::7")
	f.Add([]byte(`{"processes":[{"cmdline":"x","root":"::ffff:192.168.7.9"}]}`), "192.168.7.9")
	f.Fuzz(func(t *testing.T, text []byte, secret string) {
		var o Observation
		if json.Unmarshal(text, &o) != nil {
			return
		}
		budgettest.Within(t, len(text), budgettest.Cost{PerByte: 2048, Fixed: 4 << 20, CPU: time.Second}, func() {
			o.Host.Kernel = "at " + secret + ":80, " + secret // wherever it stands
			r, err := Redact(&o)
			if err != nil {
				t.Fatal(err)
			}
			if a, err := netip.ParseAddr(secret); err == nil && a.Zone() == "" && !a.IsLoopback() && !a.IsUnspecified() && a.Is4() && strings.Contains(r.Host.Kernel, secret) && !documented(a) {
				t.Errorf("%q is %q", o.Host.Kernel, r.Host.Kernel)
			}
			if r.Host.Name != "redacted" || r.Host.BootID != "" {
				t.Errorf("%+v", r.Host)
			}
			again, err := Redact(r)
			if err != nil {
				t.Fatal(err)
			}
			one, _ := json.Marshal(r)
			two, err := json.Marshal(again)
			if err != nil || len(one) != len(two) && !bytes.Contains(one, []byte("198.51.100.")) && !bytes.Contains(one, []byte("2001:db8")) {
				t.Errorf("%s, and then %s: %v", one, two, err)
			}
		})
	})
}

// documented says that an address is one of those that others become.
func documented(a netip.Addr) bool {
	for _, prefix := range []string{"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"} {
		if netip.MustParsePrefix(prefix).Contains(a) {
			return true
		}
	}
	return false
}
