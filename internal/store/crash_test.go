package store

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slowray/slowray/internal/observe"
)

// childEnv makes the test binary a writer into the directory it names.
const childEnv = "STORE_TEST_WRITE_INTO"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		writeForever(dir)
	}
	os.Exit(m.Run())
}

// writeForever adds numbered requests, a hundred at a time, and tells on standard
// output up to which number they are durable.
func writeForever(dir string) {
	s, err := Open(dir, Options{Segment: 200 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	seq, _ := strconv.Atoi(os.Getenv(childEnv + "_FROM"))
	for {
		for range 100 {
			r := numbered(seq)
			s.AddRequest(&r)
			seq++
		}
		if err := s.Sync(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(seq)
	}
}

// numbered is a request that tells its number by its time and its sequence number.
func numbered(n int) Request {
	r := Request{Process: observe.Identity{Comm: "child"}}
	r.Side, r.StartNS, r.Seq, r.Weight, r.PID = observe.Served, noon.UnixNano()+int64(n)*1e6, uint32(n), 1, 1+n%3
	r.Ledger[observe.Server] = int64(n) * 1000
	return r
}

// checkNumbers says whether the stored requests are those from 0 on, each once, in
// order, and at least as many as are promised.
func checkNumbers(t *testing.T, list []Request, atLeast int) {
	t.Helper()
	if len(list) < atLeast {
		t.Fatalf("%d requests are left of %d that were durable", len(list), atLeast)
	}
	for i, r := range list {
		if r != numbered(i) {
			t.Fatalf("request %d is %+v", i, r)
		}
	}
}

// A writer that is killed loses nothing that it had synced, time after time, and
// a reader next to it never sees a gap.
func TestKilledWriter(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	dir := filepath.Join(t.TempDir(), "history")
	durable := 0
	for round := range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir, childEnv+"_FROM="+strconv.Itoa(durable))
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		deadline := time.Now().Add(time.Duration(300+round*150) * time.Millisecond)
		for time.Now().Before(deadline) && lines.Scan() {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("writer: %s", lines.Text())
			}
			durable = n
			if n/100%16 == 0 {
				checkNumbers(t, readAll(t, dir, Query{}), durable)
			}
		}
		must(t, cmd.Process.Kill())
		for lines.Scan() {
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				durable = n
			}
		}
		cmd.Wait()
		cancel()
		list := readAll(t, dir, Query{})
		checkNumbers(t, list, durable)
		durable = len(list) // the next one goes on from here

		s, err := Open(dir, Options{})
		must(t, err)
		must(t, s.Close())
		checkNumbers(t, readAll(t, dir, Query{}), durable)
	}
	if durable < 500 {
		t.Errorf("only %d requests were written: too few to tell", durable)
	}
}

// A log that is cut off at any byte of its end gives all whole frames before.
func TestTornLog(t *testing.T) {
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	var ends []int64 // bytes of the log after each sync, of ten requests each
	path := filepath.Join(dir, logPath(kindRequests, 1))
	for n := range 60 {
		r := numbered(n)
		s.AddRequest(&r)
		if n%10 == 9 {
			must(t, s.Sync())
			st, err := os.Stat(path)
			must(t, err)
			ends = append(ends, st.Size())
		}
	}
	whole, err := os.ReadFile(path)
	must(t, err)
	s.lock.Close() // killed
	for size := len(whole); size > 0; size-- {
		if int64(size) < ends[len(ends)-3] && size > 2*len(logMagic) && size%7 != 0 {
			continue // every byte of the last two frames and of the header, some of the others
		}
		kept := 0
		for i, end := range ends {
			if int64(size) >= end {
				kept = (i + 1) * 10
			}
		}
		for variant, tail := range map[string]string{"cut": "", "zeros": strings.Repeat("\x00", 50), "old bytes": "\x07\x00\x00\x00garbage of an older file"} {
			if variant != "cut" && size%9 != 0 {
				continue
			}
			must(t, os.WriteFile(path, append(whole[:size:size], tail...), 0o600))
			list := readAll2(t, dir, size < len(logMagic))
			if len(list) != kept {
				t.Fatalf("cut at %d of %d (%s): %d requests, want %d", size, len(whole), variant, len(list), kept)
			}
			checkNumbers(t, list, kept)
			if size%101 != 0 {
				continue
			}
			s := openAt(t, dir, Options{}, c)
			st := s.Stats()
			if int(st.Recovered) != kept || st.Torn == 0 && int64(size) != ends[max(kept/10-1, 0)] && size != len(logMagic) {
				t.Errorf("cut at %d (%s): recovered %d of %d, torn %d", size, variant, st.Recovered, kept, st.Torn)
			}
			next := numbered(kept)
			s.AddRequest(&next)
			must(t, s.Close())
			checkNumbers(t, readAll(t, dir, Query{}), kept+1)
			must(t, os.RemoveAll(filepath.Join(dir, "requests")))
		}
	}
}

// readAll2 is readAll where a file that is no log at all may be skipped.
func readAll2(t *testing.T, dir string, maySkip bool) []Request {
	if !maySkip {
		return readAll(t, dir, Query{})
	}
	r, err := OpenReader(dir)
	must(t, err)
	var list []Request
	must(t, r.Requests(Query{}, func(req *Request) bool {
		list = append(list, *req)
		return true
	}))
	return list
}

// Readers see all that was synced, in order and once, whatever the writer does
// meanwhile.
func TestReadersBesideWriter(t *testing.T) {
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{Segment: time.Minute}, c)
	var durable atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; n < 3000; n++ {
			r := numbered(n)
			s.AddRequest(&r)
			if n%20 == 19 {
				// Twenty seconds a sync: a file each minute, an hour in no time.
				c.set(c.now().Add(20 * time.Second))
				if err := s.Sync(); err != nil {
					t.Error(err)
				}
				durable.Store(int64(n + 1))
			}
			if n%60 == 0 {
				if err := s.keep(); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	for reads := 0; ; reads++ {
		select {
		case <-done:
			must(t, s.Close())
			checkNumbers(t, readAll(t, dir, Query{}), 3000)
			if reads < 5 {
				t.Logf("only %d reads next to the writer", reads)
			}
			return
		default:
		}
		atLeast := durable.Load()
		checkNumbers(t, readAll(t, dir, Query{}), int(atLeast))
	}
}

// Any request, however odd, is read back from the log and from the file.
func TestAnyRequest(t *testing.T) {
	addr := rapid.Custom(func(t *rapid.T) netip.AddrPort {
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "ip")
		a, _ := netip.AddrFromSlice(b[:rapid.SampledFrom([]int{4, 16}).Draw(t, "family")])
		if rapid.IntRange(0, 9).Draw(t, "none") == 0 {
			a = netip.Addr{}
		}
		return netip.AddrPortFrom(a.Unmap(), rapid.Uint16().Draw(t, "port"))
	})
	text := rapid.OneOf(rapid.String(), rapid.StringN(300, 2000, -1), rapid.Just(""))
	span := rapid.Int64Range(-1<<45, 1<<45)
	request := rapid.Custom(func(t *rapid.T) Request {
		var r Request
		r.Side, r.Status = rapid.SampledFrom([]observe.Side{observe.Served, observe.Called}).Draw(t, "side"), observe.Status(rapid.IntRange(0, 2).Draw(t, "status"))
		r.Why, r.Followed = Why(rapid.IntRange(0, 2).Draw(t, "why")), rapid.Bool().Draw(t, "followed")
		r.StartNS, r.NetNS = rapid.Int64Range(-1<<62, 1<<62).Draw(t, "start"), rapid.Uint64().Draw(t, "netns")
		r.Local, r.Peer = addr.Draw(t, "local"), addr.Draw(t, "peer")
		r.PID, r.TID, r.HTTP = int(rapid.Int32().Draw(t, "pid")), int(rapid.Int32().Draw(t, "tid")), int(rapid.Int32().Draw(t, "http"))
		r.Seq, r.Requests, r.Weight = rapid.Uint32().Draw(t, "seq"), rapid.Uint32().Draw(t, "requests"), rapid.Uint32().Draw(t, "weight")
		r.Unacked, r.Retrans, r.MSS = rapid.Uint32().Draw(t, "unacked"), rapid.Uint32().Draw(t, "retrans"), rapid.Uint32().Draw(t, "mss")
		r.BytesIn, r.BytesOut = rapid.Uint64().Draw(t, "in"), rapid.Uint64().Draw(t, "out")
		r.RTTNS, r.MinRTTNS, r.FirstByte = span.Draw(t, "rtt"), span.Draw(t, "min"), span.Draw(t, "first")
		for _, bit := range rapid.SliceOf(rapid.IntRange(0, 18)).Draw(t, "flags") {
			r.Flags |= 1 << bit
		}
		r.Label = text.Draw(t, "label")
		for p := range r.Ledger {
			if rapid.Bool().Draw(t, "part") {
				r.Ledger[p] = span.Draw(t, "ns")
			}
		}
		for p := range r.Split {
			if rapid.Bool().Draw(t, "part") {
				r.Split[p] = span.Draw(t, "ns")
			}
		}
		r.Process = rapid.SampledFrom([]observe.Identity{
			{}, {Comm: "nginx"}, {Comm: "php\x00fpm", Cgroup: "/a/b", Container: "c0ffee", ContainerName: "web", Unit: "php.service"},
			{Comm: text.Draw(t, "comm"), Unit: text.Draw(t, "unit")},
		}).Draw(t, "process")
		return r
	})
	base := t.TempDir()
	rounds := 0
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(request, 1, 20).Draw(t, "requests")
		rounds++
		dir := filepath.Join(base, strconv.Itoa(rounds))
		c := &clock{t: noon}
		s, err := open(dir, Options{MaxAge: 1 << 62}, c.now)
		if err != nil {
			t.Fatal(err)
		}
		var want []Request
		for i := range list {
			s.AddRequest(&list[i])
			want = append(want, stored(list[i]))
			var sum int64
			for _, ns := range want[i].Ledger[:observe.AckDelay] {
				sum += ns
			}
			if total := list[i].TotalNS(); max(sum-total, total-sum) > 500 {
				t.Fatalf("total %d ns is stored as %d", total, sum)
			}
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		sameIn := func() {
			r, err := OpenReader(dir)
			if err != nil {
				t.Fatal(err)
			}
			var got []Request
			if err := r.Requests(Query{}, func(req *Request) bool { got = append(got, *req); return true }); err != nil {
				t.Fatal(err)
			}
			if skipped := r.Skipped(); len(skipped) > 0 {
				t.Fatal(skipped)
			}
			left := map[Request]int{}
			for _, r := range want {
				left[r]++
			}
			for i, r := range got {
				if left[r]--; left[r] < 0 {
					t.Fatalf("request %d is not one of those that were stored: %+v\n%+v", i, r, want)
				}
			}
			if len(got) != len(want) {
				t.Fatalf("%d requests, want %d", len(got), len(want))
			}
		}
		sameIn()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		sameIn()
		os.RemoveAll(dir)
	})
}
