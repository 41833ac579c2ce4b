package heap

import (
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
)

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute})
}

func TestOf(t *testing.T) {
	const gb = 1 << 30
	for _, c := range []struct {
		runtime string
		words   []string
		limit   uint64
		want    uint64
		from    string
	}{
		{JVM, []string{"java", "-Xms64m", "-Xmx2g", "org.apache.catalina.startup.Bootstrap"}, 512 << 20, 2 * gb, "-Xmx2g"},
		{JVM, []string{"java", "-Xmx2g", "-XX:MaxHeapSize=64m"}, 0, 64 << 20, "-XX:MaxHeapSize=64m"},
		{JVM, []string{"java"}, 512 << 20, 128 << 20, "default"},
		{JVM, []string{"java", "-XX:-UseContainerSupport"}, 512 << 20, 2 * gb, "default, a quarter of the host's memory: -XX:-UseContainerSupport"},
		{JVM, []string{"java"}, 0, 2 * gb, "default"},
		{JVM, []string{"-XX:MaxRAMPercentage=75.0 -Dpassword=x"}, 400 << 20, 300 << 20, "-XX:MaxRAMPercentage=75.0"},
		{JVM, []string{"-Xmx99999999999999999999g"}, 0, 2 * gb, "default"},
		{Node, []string{"node", "--max-old-space-size=4096", "server.js"}, 512 << 20, 4 * gb, "--max-old-space-size=4096"},
		{Node, []string{"node", "server.js"}, 512 << 20, 0, ""},
	} {
		h := Of(c.runtime, Options(c.words), 8*gb, c.limit)
		if h.MaxBytes != c.want || h.From != c.from {
			t.Errorf("%q in %d: %d from %q, want %d from %q", c.words, c.limit, h.MaxBytes, h.From, c.want, c.from)
		}
	}
	if got := Options([]string{"-Dsecret=-Xmx1g x", "-Xmx1g"}); !slices.Equal(got, []string{"-Xmx1g"}) {
		t.Errorf("options %q", got)
	}
}

// entry is one counter as a JVM lays it out.
func entry(name string, kind byte, value []byte, vector int) []byte {
	nameAt := 20
	valueAt := (nameAt + len(name) + 1 + 7) &^ 7
	e := make([]byte, (valueAt+len(value)+7)&^7)
	le := binary.LittleEndian
	le.PutUint32(e, uint32(len(e)))
	le.PutUint32(e[4:], uint32(nameAt))
	le.PutUint32(e[8:], uint32(vector))
	e[12] = kind
	le.PutUint32(e[16:], uint32(valueAt))
	copy(e[nameAt:], name)
	copy(e[valueAt:], value)
	return e
}

func long(name string, v uint64) []byte {
	return entry(name, 'J', binary.LittleEndian.AppendUint64(nil, v), 0)
}

func perf(entries ...[]byte) []byte {
	b := make([]byte, 32)
	copy(b, []byte{0xca, 0xfe, 0xc0, 0xc0, 1, 2})
	binary.LittleEndian.PutUint32(b[24:], 32)
	binary.LittleEndian.PutUint32(b[28:], uint32(len(entries)))
	return append(b, slices.Concat(entries...)...)
}

func TestPerfData(t *testing.T) {
	b := perf(long("sun.os.hrt.frequency", 1e9), entry("sun.gc.collector.0.name", 'B', []byte("Copy\x00"), 5), long("sun.gc.generation.0.maxCapacity", 100),
		long("sun.gc.generation.1.maxCapacity", 200), long("sun.gc.collector.0.time", 5e8), long("sun.gc.collector.1.invocations", 3), long("sun.gc.generation.0.space.1.used", 7))
	d, err := parsePerfData(enough(), b)
	if want := (perfData{maxBytes: 300, usedBytes: 7, collections: 3, gcTicks: 5e8, hz: 1e9, collector: "serial"}); err != nil || d != want {
		t.Errorf("%+v %v, want %+v", d, err, want)
	}
	for n := range b { // a file that is cut off, or changes while it is read
		_, _ = parsePerfData(enough(), b[:n])
	}
	if _, err := parsePerfData(enough(), []byte("x")); err == nil {
		t.Error("no error for what is no such file")
	}
}

func FuzzPerfData(f *testing.F) {
	f.Add(perf(long("sun.os.hrt.frequency", 1e9)))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parsePerfData(enough(), b) })
}

// TestRealJVM reads the counters of a JVM that runs: the head of jshell's.
func TestRealJVM(t *testing.T) {
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("no java here (apt-get install openjdk-17-jre-headless)")
	}
	source := t.TempDir() + "/Nap.java"
	if err := os.WriteFile(source, []byte("class Nap { public static void main(String[] a) throws Exception { System.gc(); Thread.sleep(20000); } }"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(java, "-Xmx64m", "-XX:+UseSerialGC", source)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for range 100 {
		w := Begin(enough(), "/proc", 8<<30, []Process{{PID: cmd.Process.Pid, Comm: "java"}})
		if h := w.End(enough()); len(h) == 1 && h[0].Published {
			if h[0].Collector != "serial" || h[0].MaxBytes < 50<<20 || h[0].MaxBytes > 64<<20 || h[0].From != "-Xmx64m" {
				t.Errorf("%+v", h[0])
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("no counters in 5 s")
}
