package observe

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// Redact returns a copy of o that can be handed to strangers: command lines,
// log lines, labels of requests and search domains are left out, the host's name too, and every address but
// loopback is replaced by one reserved for documentation (RFC 5737, RFC 3849),
// the same one wherever it stands. Ports, pids, names of programs, file paths
// and all figures stay, so it is judged as o is.
func Redact(o *Observation) (*Observation, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("redact: %w", err)
	}
	// Walking the JSON covers fields that are added later too.
	var tree any
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber() // inode numbers do not fit a float64
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("redact: %w", err)
	}
	r := redactor{v4: map[netip.Addr]netip.Addr{}, v6: map[netip.Addr]netip.Addr{}}
	if text, err = json.Marshal(r.walk(tree)); err != nil {
		return nil, fmt.Errorf("redact: %w", err)
	}
	out := &Observation{}
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("redact: %w", err)
	}
	out.Host.Name, out.Host.BootID = "redacted", ""
	return out, nil
}

// leftOut are the fields that hold what users or clients wrote.
var leftOut = map[string]bool{"cmdline": true, "example": true, "label": true, "statement": true, "search": true}

type redactor struct{ v4, v6 map[netip.Addr]netip.Addr }

func (r *redactor) walk(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if leftOut[key] {
				delete(v, key)
			} else {
				v[key] = r.walk(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = r.walk(v[i])
		}
	case string:
		return maybeAddress.ReplaceAllStringFunc(v, r.replace)
	}
	return v
}

// maybeAddress finds what could be an address, perhaps with a port.
var maybeAddress = regexp.MustCompile(`[0-9a-fA-F]*[:.][0-9a-fA-F:.]+`)

func (r *redactor) replace(token string) string {
	if a, err := netip.ParseAddr(token); err == nil {
		return r.other(a).String()
	}
	// "192.0.2.1:80"; a port behind an IPv6 address is outside its brackets.
	if i := strings.LastIndexByte(token, ':'); i > 0 {
		if a, err := netip.ParseAddr(token[:i]); err == nil && a.Is4() {
			return r.other(a).String() + token[i:]
		}
	}
	return token
}

// other is what stands for a.
func (r *redactor) other(a netip.Addr) netip.Addr {
	if a.IsLoopback() || a.IsUnspecified() || a.Is4In6() && a.Unmap().IsLoopback() {
		return a
	}
	if a.Is4() {
		if _, ok := r.v4[a]; !ok {
			r.v4[a] = documentationV4(len(r.v4))
		}
		return r.v4[a]
	}
	if _, ok := r.v6[a]; !ok {
		b := netip.MustParseAddr("2001:db8::").As16()
		binary.BigEndian.PutUint64(b[8:], uint64(len(r.v6)+1))
		r.v6[a] = netip.AddrFrom16(b)
	}
	return r.v6[a]
}

// documentationV4 is the n-th address of the three documentation networks,
// then of 240.0.0.0/4, which nobody uses.
func documentationV4(n int) netip.Addr {
	nets := [][4]byte{{192, 0, 2, 0}, {198, 51, 100, 0}, {203, 0, 113, 0}}
	if i := n / 254; i < len(nets) {
		b := nets[i]
		b[3] = byte(n%254 + 1)
		return netip.AddrFrom4(b)
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 240<<24+uint32(n))
	return netip.AddrFrom4(b)
}
