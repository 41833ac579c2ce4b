package bench

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// heldPerProcess is how many connections one process of a crowd holds, both
// ends: a little less than half of the files it may have open.
const heldPerProcess = 8334

// connections is the process that holds connections: it opens them to an
// address of its own, says so, and makes one request on each whenever it is
// sent a line.
func connections(args []string) {
	l, err := net.Listen("tcp4", args[0])
	if err != nil {
		fail("listen", err)
	}
	held := make([]struct{ client, server net.Conn }, heldPerProcess)
	for i := range held {
		if held[i].client, err = net.Dial("tcp4", l.Addr().String()); err != nil {
			fail("dial", err)
		}
		if held[i].server, err = l.Accept(); err != nil {
			fail("accept", err)
		}
	}
	request, response := make([]byte, 100), make([]byte, 200)
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("done") {
		for _, c := range held {
			for _, step := range []func() (int, error){
				func() (int, error) { return c.client.Write(request) },
				func() (int, error) { return io.ReadFull(c.server, request) },
				func() (int, error) { return c.server.Write(response) },
				func() (int, error) { return io.ReadFull(c.client, response) },
			} {
				if _, err := step(); err != nil {
					fail("request", err)
				}
			}
		}
	}
}

// crowd is several processes that hold connections on a stage.
type crowd struct {
	*stage
	members []*dialogue
}

// grow adds processes.
func (c *crowd) grow(n int) {
	c.b.Helper()
	for range n {
		cmd := c.command("/proc/self/exe", fmt.Sprintf("127.0.%d.1:8000", len(c.members)+1))
		cmd.Env = append(os.Environ(), "SLOWRAY_BENCH_ROLE=connections")
		d, err := converse(cmd, c.start)
		if err != nil {
			c.b.Fatal(err)
		}
		c.b.Cleanup(func() { d.end() })
		c.members = append(c.members, d)
	}
	for _, d := range c.members[len(c.members)-n:] {
		if line, err := d.line(); err != nil || line != "ready" {
			c.b.Fatalf("connections: %q, %v", line, err)
		}
	}
}

func (c *crowd) connections() int { return len(c.members) * heldPerProcess }

// requests makes one request on every connection.
func (c *crowd) requests() {
	c.b.Helper()
	for _, d := range c.members {
		if line, err := d.ask("request"); err != nil || line != "done" {
			c.b.Fatalf("connections: %q, %v", line, err)
		}
	}
}

// kernelMemory is what the kernel holds for objects of its own, bytes, by kind:
// its slab caches by name, and what is allocated by the page.
func kernelMemory() map[string]float64 {
	held := map[string]float64{}
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "VmallocUsed:", "Percpu:":
			kb, _ := strconv.ParseFloat(fields[1], 64)
			held[strings.TrimSuffix(fields[0], ":")] = kb * 1024
		}
	}
	text, _ = os.ReadFile("/proc/slabinfo")
	for line := range strings.Lines(string(text)) {
		// name <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>
		// : tunables … : slabdata <active_slabs> <num_slabs> <sharedavail>
		fields := strings.Fields(line)
		if len(fields) < 16 || fields[6] != ":" {
			continue
		}
		pages, _ := strconv.ParseFloat(fields[5], 64)
		slabs, _ := strconv.ParseFloat(fields[14], 64)
		held[fields[0]] = pages * slabs * float64(os.Getpagesize())
	}
	return held
}

// settledKernelMemory waits until what is freed late has been freed.
func settledKernelMemory() map[string]float64 {
	time.Sleep(2 * time.Second)
	return kernelMemory()
}

// growth is the sum of what became more, and its greatest parts. Caches that
// belong to files and to the sockets themselves have no part in it.
func growth(before, after map[string]float64) (sum float64, parts string) {
	var kinds []string
	for kind := range after {
		switch {
		case strings.Contains(kind, "inode"), strings.Contains(kind, "dentry"), strings.HasPrefix(kind, "ext4"), strings.HasPrefix(kind, "jbd2"),
			strings.HasPrefix(kind, "skbuff"), strings.HasPrefix(kind, "TCP"), kind == "buffer_head", kind == "radix_tree_node":
			continue
		}
		sum += after[kind] - before[kind]
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b string) int {
		return cmp.Compare(after[b]-before[b], after[a]-before[a])
	})
	for _, kind := range kinds[:5] {
		parts += fmt.Sprintf(" %s %.1f", kind, (after[kind]-before[kind])/1e6)
	}
	return sum, parts
}

// BenchmarkRequestsConnections attaches to a host with 30,000 open
// connections, and tells the memory that 100,000 take. Both ends of the
// connections are on this host and both are recorded, so half as many
// connections make as many sockets as a server with remote clients has.
func BenchmarkRequestsConnections(b *testing.B) {
	s := newStage(b)
	var attach, memory, total, perSocket, resident, flush, missing sample
	for b.Loop() {
		c := &crowd{stage: s}
		c.grow(2)
		c.requests()
		for range 3 {
			r, err := startRecorder(everything)
			if err != nil {
				b.Fatal(err)
			}
			attach = append(attach, r.attach.Seconds())
			if _, err := r.stop(); err != nil {
				b.Fatal(err)
			}
		}
		c.grow(4)
		c.requests()
		before := settledKernelMemory()
		r, err := startRecorder(everything)
		if err != nil {
			b.Fatal(err)
		}
		bare, err := r.report() // what it holds whatever the connections
		if err != nil {
			b.Fatal(err)
		}
		for range 2 {
			c.requests()
		}
		kernel, parts := growth(before, settledKernelMemory())
		time.Sleep(4 * time.Second) // until the last request of each connection has been handed out
		saw, err := r.report()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.stop(); err != nil {
			b.Fatal(err)
		}
		sockets := float64(2 * c.connections())
		// Both ends of both rounds.
		missing = append(missing, 2*sockets-float64(saw.recorded(8000)))
		memory = append(memory, (kernel+float64(saw.Resident-bare.Resident))/1e6)
		total = append(total, (kernel+float64(saw.Resident))/1e6)
		perSocket = append(perSocket, kernel/sockets)
		resident = append(resident, float64(saw.Resident)/1e6)
		flush = append(flush, saw.LongestFlush.Seconds()*1e3)
		progress(b, fmt.Sprintf("%d connections, both ends: %.0f MB in the kernel (most:%s), %.0f MB by the maps' own account, %.0f MB resident; recorded: %d served, %d called, %d lost",
			c.connections(), kernel/1e6, parts, float64(saw.MapBytes)/1e6, float64(saw.Resident)/1e6,
			saw.recorded(8000, "served"), saw.recorded(8000, "called"), saw.Stats.Lost))
	}
	reportFigures(b, fmt.Sprintf("Open connections (%d sockets; attaching: %d)", 2*6*heldPerProcess, 2*2*heldPerProcess),
		figure{name: "attaching, s", format: "%.2f", sample: attach, target: atMost(1), exact: true},
		figure{name: "memory that they take, MB", format: "%.1f", sample: memory, target: atMost(60), exact: true,
			note: "the kernel's, the recorder's maps and what its process grew by"},
		figure{name: "… with all of the recorder's process, MB", format: "%.1f", sample: total},
		figure{name: "kernel memory per socket, bytes", format: "%.0f", sample: perSocket},
		figure{name: "recorder resident, MB", format: "%.1f", sample: resident},
		figure{name: "longest Flush, ms", format: "%.1f", sample: flush},
		figure{name: "requests without a record", format: "%.0f", sample: missing, target: atMost(0), exact: true},
	)
	b.ReportMetric(0, "ns/op")
}
