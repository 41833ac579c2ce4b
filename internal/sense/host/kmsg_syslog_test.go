package host

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSyslogRecords(t *testing.T) {
	const text = "<6>[    0.000000] Linux version 6.1\n" +
		"<3>[   12.000100] Out of memory: Killed process 4711 (java)\n" +
		"<30>[   13.000000] from user space\n" + // facility 3, daemon
		"<4>[   14.500000][ T4711] TCP: too many orphaned sockets\n" +
		"<4>[   15.5] no microseconds\n<4>without a time\n[   16.000000] no priority\n<x>[   16.000000] x\n" +
		"<4>[12345.678901] [ is not a caller\n"
	var got []string
	first, last := syslogRecords([]byte(text), 12*time.Second, func(r kmsgRecord, at time.Duration) {
		from := "user"
		if r.kernel {
			from = "kernel"
		}
		got = append(got, at.String()+" "+from+" "+string(r.text))
	})
	want := []string{
		"12.0001s kernel Out of memory: Killed process 4711 (java)",
		"13s user from user space",
		"14.5s kernel TCP: too many orphaned sockets",
		"3h25m45.678901s kernel [ is not a caller",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("records:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if first != 0 || last != 12345678901*time.Microsecond {
		t.Errorf("from %s to %s", first, last)
	}
}

// TestSyslogIsTheKernelLog: both ways to read it give the same latest record.
func TestSyslogIsTheKernelLog(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root")
	}
	text, err := readSyslog()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	fd, err := unix.Open(kmsgDevice, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	defer unix.Close(fd)
	device := map[time.Duration]string{}
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil || n <= 0 {
			break
		}
		line, _ := nextLine(buf[:n])
		if r, ok := parseKmsg(line); ok {
			at, _ := kmsgTime(line)
			device[at] += string(r.text) + "\n"
		}
	}
	matched, records := 0, 0
	syslogRecords(text, 0, func(r kmsgRecord, at time.Duration) {
		records++
		if strings.Contains(device[at], string(r.text)+"\n") {
			matched++
		}
	})
	if records == 0 || matched < records*9/10 { // the device escapes what is not printable
		t.Errorf("%d of %d records are those of %s", matched, records, kmsgDevice)
	}
}
