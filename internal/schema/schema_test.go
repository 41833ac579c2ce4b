package schema

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/observe/observetest"
)

// everyField copies a request field by field.
func everyField(r *Request) (c Request) {
	for i := range Requests {
		f := &Requests[i]
		switch f.Kind {
		case Text:
			f.SetText(&c, f.Text(r))
		case Addr:
			f.SetAddr(&c, f.Addr(r))
		case Enum:
			f.SetEnumName(&c, f.EnumName(r))
		default:
			f.SetInt(&c, f.Int(r))
		}
	}
	return c
}

func TestEveryFieldIsInTheTable(t *testing.T) {
	full := Request{Request: observetest.Requests()[0], Process: observetest.Identities()[0], Why: Failed}
	full.Process.Workload = observe.Workload{Namespace: "shop", Pod: "db-0", Container: "mariadb", Kind: "StatefulSet", Name: "db", Node: "node-7", Zone: "b", Service: "of peers only"}
	full.PeerWorkload = observe.Workload{Namespace: "shop", Pod: "cart-0", Container: "an address is the whole pod's", Kind: "Deployment", Name: "cart", Node: "node-9", Zone: "a", Service: "cart"}
	var empty func(v reflect.Value) bool
	empty = func(v reflect.Value) bool {
		if v.Type() == reflect.TypeFor[netip.AddrPort]() || v.Kind() != reflect.Struct {
			return v.IsZero()
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name == "Share" { // of what is recorded now only
				continue
			}
			if empty(v.Field(i)) {
				t.Errorf("%s.%s of the sample is zero", v.Type(), v.Type().Field(i).Name)
			}
		}
		return false
	}
	empty(reflect.ValueOf(full))
	full.PeerWorkload.Container, full.Process.Workload.Service = "", ""
	if got := everyField(&full); got != full {
		t.Errorf("%+v, want %+v: a field is not in the table", got, full)
	}
	full.Trace = observe.Trace{} // the text of an ID is made anew
	if n := testing.AllocsPerRun(10, func() { everyField(&full) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func TestNamesDiffer(t *testing.T) {
	known := map[string]bool{}
	for _, f := range Requests {
		if known[f.Name] {
			t.Errorf("%s is there twice", f.Name)
		}
		known[f.Name] = true
	}
}

// FuzzDigits: what is no ID is none, and an ID comes back as it was.
func FuzzDigits(f *testing.F) {
	f.Add("4bf92f3577b34da6a3ce929d0e0e4736")
	f.Add("4bf92f3577b34da6a3ce929d0e0e473g")
	fields := Fields("trace_id", "parent_span_id")
	f.Fuzz(func(t *testing.T, text string) {
		for i := range fields {
			r := Request{Request: observe.Request{Trace: observe.Trace{ID: [16]byte{1}, Parent: [8]byte{1}}}}
			fields[i].SetText(&r, text)
			if got := fields[i].Text(&r); got != "" && got != strings.ToLower(text) {
				t.Errorf("%s: %q became %q", fields[i].Name, text, got)
			}
		}
	})
}
