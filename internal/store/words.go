package store

import (
	"net/netip"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Words keeps the text of addresses and flags, which come again and again. It is for
// one goroutine; the zero value is ready.
type Words struct {
	addrs map[netip.Addr]string
	flags map[observe.RequestFlags]string
}

const maxWords = 1 << 16 // then they are forgotten

// Addr is the text of an address, empty when there is none.
func (w *Words) Addr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	s, ok := w.addrs[a]
	if !ok {
		if w.addrs == nil || len(w.addrs) >= maxWords {
			w.addrs = map[netip.Addr]string{}
		}
		s = a.String()
		w.addrs[a] = s
	}
	return s
}

// FlagNames is the names of flags as in the column "flags".
func (w *Words) FlagNames(f observe.RequestFlags) string {
	if f == 0 {
		return ""
	}
	s, ok := w.flags[f]
	if !ok {
		if w.flags == nil || len(w.flags) >= maxWords {
			w.flags = map[observe.RequestFlags]string{}
		}
		s = strings.Join(f.Names(), ",")
		w.flags[f] = s
	}
	return s
}
