package host

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// kmsgDevice is where the kernel log is read. A container that is not privileged has
// nothing there, but may read the same by syslog(2) with CAP_SYSLOG.
const kmsgDevice = "/dev/kmsg"

// Actions of syslog(2), include/linux/syslog.h.
const (
	syslogReadAll    = 3
	syslogSizeBuffer = 10
)

// maxSyslog bounds what is read of the kernel's buffer, the latest part of it.
const maxSyslog = 4 << 20

// readSyslog is the kernel's buffer as text.
func readSyslog() ([]byte, error) {
	size, err := unix.Klogctl(syslogSizeBuffer, nil)
	if err != nil {
		return nil, fmt.Errorf("syslog(2): %w", err)
	}
	// With the time before each line it is longer than the buffer that it comes from.
	buf := make([]byte, min(2*size, maxSyslog))
	n, err := unix.Klogctl(syslogReadAll, buf)
	if err != nil {
		return nil, fmt.Errorf("syslog(2): %w", err)
	}
	return buf[:n], nil
}

// syslogRecords calls record with the lines of text that were logged after a time since
// boot, in the form of /dev/kmsg, and gives the times of the first and the last line. They
// have no sequence numbers: seq is 0.
func syslogRecords(text []byte, after time.Duration, record func(r kmsgRecord, at time.Duration)) (first, last time.Duration) {
	for known := false; len(text) > 0; {
		var line []byte
		line, text = nextLine(text)
		prio, at, message, ok := parseSyslog(line)
		if !ok {
			continue
		}
		if !known {
			first, known = at, true
		}
		last = max(last, at)
		if at > after {
			record(kmsgRecord{kernel: prio>>3 == 0, text: message}, at)
		}
	}
	return first, last
}

// parseSyslog reads "<PRIORITY>[SECONDS.MICROSECONDS] TEXT" (print_prefix,
// kernel/printk/printk.c), with "[CALLER]" after the time where CONFIG_PRINTK_CALLER is
// set. Without printk.time there is no telling what is new: that is not ok.
func parseSyslog(line []byte) (prio uint64, at time.Duration, text []byte, ok bool) {
	line, ok = bytes.CutPrefix(line, []byte("<"))
	head, line, ok2 := bytes.Cut(line, []byte(">["))
	stamp, line, ok3 := bytes.Cut(line, []byte("]"))
	seconds, micros, ok4 := bytes.Cut(bytes.TrimLeft(stamp, " "), []byte("."))
	prio, ok5 := ParseUint(head)
	s, ok6 := ParseUint(seconds)
	us, ok7 := ParseUint(micros)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 || len(micros) != 6 || s > 1<<32 {
		return 0, 0, nil, false
	}
	if bytes.HasPrefix(line, []byte("[ ")) {
		if _, rest, caller := bytes.Cut(line, []byte("]")); caller {
			line = rest
		}
	}
	return prio, time.Duration(s)*time.Second + time.Duration(us)*time.Microsecond, bytes.TrimPrefix(line, []byte(" ")), true
}
