package web

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// endpointKey is what tells endpoints apart for a reader: the process is known
// by its name, for its number changes when the service is started anew.
type endpointKey struct {
	side  observe.Side
	netns uint64
	addr  string
	port  int
	comm  string
}

func keyOf(e *observe.Endpoint) endpointKey {
	side := observe.Served
	if e.Side == observe.Called.String() {
		side = observe.Called
	}
	return endpointKey{side, e.NetNS, e.Addr, e.Port, e.Comm}
}

// keyOfRequest is the endpoint of a request: served, the address it came to;
// called, the address it went to.
func keyOfRequest(r *store.Request) endpointKey {
	at := r.Local
	if r.Side == observe.Called {
		at = r.Peer
	}
	return endpointKey{r.Side, r.NetNS, at.Addr().Unmap().WithZone("").String(), int(at.Port()), r.Process.Comm}
}

// String is the key in an address: side|netns|addr|port|comm. Bytes of the name
// that are not plain are written %XX, so that it is the same after any way
// through JSON.
func (k endpointKey) String() string {
	return strings.Join([]string{k.side.String(), strconv.FormatUint(k.netns, 10), k.addr, strconv.Itoa(k.port), escapeName(k.comm)}, "|")
}

const upperHex = "0123456789ABCDEF"

func escapeName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c <= ' ' || c > '~' || strings.IndexByte("%|\"\\<>&'", c) >= 0:
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescapeName takes back what escapeName did. A per cent sign without two
// digits stands for itself: people write keys too.
func unescapeName(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

const maxKey = 512 // bytes

// others is the address of what sums up the endpoints of a side that have no place
// of their own.
const others = "other"

func parseKey(text string) (endpointKey, error) {
	if len(text) > maxKey {
		return endpointKey{}, errors.New("is too long")
	}
	fields := strings.SplitN(text, "|", 5)
	if len(fields) != 5 {
		return endpointKey{}, errors.New("must be side|netns|addr|port|comm")
	}
	k := endpointKey{addr: fields[2], comm: unescapeName(fields[4])}
	switch fields[0] {
	case observe.Served.String():
		k.side = observe.Served
	case observe.Called.String():
		k.side = observe.Called
	default:
		return endpointKey{}, errors.New("side must be served or called")
	}
	var err error
	if k.netns, err = strconv.ParseUint(fields[1], 10, 64); err != nil {
		return endpointKey{}, errors.New("netns must be a number")
	}
	if k.addr != "" && k.addr != others {
		if _, err := netip.ParseAddr(k.addr); err != nil {
			return endpointKey{}, errors.New("addr must be an IP address")
		}
	}
	port, err := strconv.ParseUint(fields[3], 10, 16)
	if err != nil {
		return endpointKey{}, errors.New("port must be 0 to 65535")
	}
	k.port = int(port)
	return k, nil
}

// query chooses the endpoint.
func (k endpointKey) query(q store.Query) store.Query {
	q.Side, q.NetNS, q.Addr, q.Port, q.Comm = k.side, k.netns, k.addr, k.port, k.comm
	return q
}

func (k endpointKey) compare(o endpointKey) int {
	return cmp.Or(cmp.Compare(k.side, o.side), cmp.Compare(k.netns, o.netns), strings.Compare(k.addr, o.addr),
		cmp.Compare(k.port, o.port), strings.Compare(k.comm, o.comm))
}

// title names the endpoint for people: "nginx 10.0.0.5:80".
func (k endpointKey) title() string {
	address := fmt.Sprintf("%s:%d", k.addr, k.port)
	if strings.Contains(k.addr, ":") {
		address = fmt.Sprintf("[%s]:%d", k.addr, k.port)
	}
	if k.comm == "" {
		return address
	}
	if k.side == observe.Called {
		return k.comm + " → " + address
	}
	return k.comm + " " + address
}
