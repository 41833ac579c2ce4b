package connect

import (
	"testing"
)

// FuzzCounted turns what was counted in the kernel into results: nothing is more than
// what was counted, and what is shared among callers is not shared out twice.
func FuzzCounted(f *testing.F) {
	f.Add([]byte("\x0a\x00\x00\x07"), []byte("nginx\x00x"), []byte("/run/php.sock\x00"), uint16(2), uint64(10), uint64(3), uint64(1))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x00\x00\x07"), []byte{}, []byte("\x00abstract"), uint16(10), uint64(1), uint64(7), uint64(1<<63))
	f.Fuzz(func(t *testing.T, addr, name, path []byte, family uint16, calls, failed, other uint64) {
		var a, c [16]byte
		copy(a[:], addr)
		copy(c[:], name)
		if got := address(family, a); !got.IsValid() || got.Is4In6() || got.Zone() != "" {
			t.Errorf("family %d of %x is %s", family, a, got)
		}
		if got := comm(c); len(got) > len(c) {
			t.Errorf("%q", got)
		}
		if got := unixPath(path); len(got) > len(path)+1 {
			t.Errorf("%q of %q", got, path)
		}
		o := outcome{Comm: c, Calls: calls, Failed: failed, Other: other}
		got := newConnect(1, &o, "EAGAIN")
		if got.Started > calls {
			t.Errorf("%d began of %d", got.Started, calls)
		}
		var errors uint64
		for _, n := range got.Errors {
			errors += n
		}
		if errors != failed+other {
			t.Errorf("%d errors of %d and %d", errors, failed, other)
		}
		// Two callers of one address.
		all := got.Started + calls
		if all < calls || all == 0 || failed > 1<<52 {
			return
		}
		if one, two := share(failed, got.Started, all), share(failed, calls, all); one+two > failed {
			t.Errorf("%d and %d of %d", one, two, failed)
		}
	})
}
