package flow

import (
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// TestDatagramsAreSeen: datagrams over loopback are counted, with their port
// and source, and packets of before the look are not.
func TestDatagramsAreSeen(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	sink, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	port := sink.LocalAddr().(*net.UDPAddr).Port
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := net.Dial("udp4", sink.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const sent = 3200
	send := func() {
		for range sent {
			_, _ = c.Write([]byte("hello"))
		}
	}
	send() // unseen
	var over atomic.Bool
	done := make(chan bool)
	go func() {
		defer close(done)
		for !over.Load() && !seesPackets(s) { // it attaches when the machine lets it
			_, _ = c.Write([]byte("hello"))
			time.Sleep(time.Millisecond)
		}
		send()
	}()
	if err := s.Look(time.Second); err != nil {
		t.Fatal(err)
	}
	over.Store(true)
	<-done
	flows, losses, err := s.Read()
	if err != nil || len(losses) > 0 {
		t.Fatal(err, losses)
	}
	for _, f := range flows {
		if f.Proto == "udp" && f.Port == port {
			if f.Interface != "lo" || f.Peer != "127.0.0.1" || f.PeerShare < 0.99 || f.NetNS == 0 {
				t.Errorf("%+v", f)
			}
			if f.Packets < sent*8/10 || f.Packets > sent*12/10 {
				t.Errorf("%d packets, want about %d", f.Packets, sent)
			}
			return
		}
	}
	t.Errorf("no flow to port %d among %+v", port, flows)
}

// seesPackets says whether the program has seen any, of whomever.
func seesPackets(s *Sampler) bool {
	var each []uint64
	return s.objects.Packets.Lookup(uint32(0), &each) != nil || slices.Max(each) > 0
}

func TestNames(t *testing.T) {
	if got := protoName(99); got != "other" {
		t.Error(got)
	}
	six := peerKey{Family: 10, Addr: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}}
	if got := address(&six); got != "2001:db8::1" {
		t.Error(got)
	}
}
