package flow

import "testing"

// FuzzKeys turns keys of the kernel's maps into words: a flow is of a protocol and an
// address, whatever numbers they are.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("eth0\x00x"), []byte("\x0a\x00\x00\x07"), uint16(2), uint16(1))
	f.Add([]byte("0123456789abcdefgh"), []byte{}, uint16(10), uint16(1<<16-1))
	f.Fuzz(func(t *testing.T, name, addr []byte, family, proto uint16) {
		var n [16]byte
		copy(n[:], name)
		if got := text(n); len(got) > len(n) {
			t.Errorf("%q", got)
		}
		if protoName(proto) == "" {
			t.Errorf("protocol %d has no name", proto)
		}
		p := peerKey{Family: uint32(family)}
		copy(p.Addr[:], addr)
		if address(&p) == "invalid IP" {
			t.Errorf("family %d of %x is no address", family, p.Addr)
		}
	})
}
