package bpf

import (
	"sync"

	"github.com/cilium/ebpf"
)

// Lookups are the maps of headers/lookup.h: the programs of dns.bpf.c write answers of nameservers
// down in them, and those of request.bpf.c, which they belong to, take them when somebody connects.
type Lookups struct {
	maps map[string]*ebpf.Map
	seen *ebpf.Variable // somebody writes

	mu      sync.Mutex
	writers int
}

// NewLookups is those of a recorder's maps.
func NewLookups(maps *RequestMaps, variables *RequestVariables) *Lookups {
	return &Lookups{
		maps: map[string]*ebpf.Map{DNSMapAnswers: maps.Answers, DNSMapLookupsDone: maps.LookupsDone},
		seen: variables.LookupsSeen,
	}
}

// LoadDNSBeside loads the programs of dns.bpf.c so that they write in l; where l is nil nobody
// reads what they write.
func LoadDNSBeside(spec *ebpf.CollectionSpec, objects *DNSObjects, l *Lookups) error {
	if l == nil {
		return Load(spec, objects)
	}
	return LoadBeside(spec, objects, l.maps)
}

// Written says that somebody begins to write, or ends.
func (l *Lookups) Written(begins bool) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if begins {
		l.writers++
	} else {
		l.writers--
	}
	var seen uint8
	if l.writers > 0 {
		seen = 1
	}
	return l.seen.Set(seen)
}
