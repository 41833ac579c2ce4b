package watch

import "github.com/slowray/slowray/internal/sense/host"

// kernelLog reads what the kernel logs during the window.
type kernelLog struct {
	log *host.Kmsg // nil where it cannot be read
}

func (k *kernelLog) begin(*session) (err error) {
	k.log, err = host.OpenKmsg("/dev/kmsg")
	return err
}

func (k *kernelLog) end(s *session) {
	lines, lost := k.log.Drain()
	s.out.KernelLog = lines
	s.lose("kernel log lines overwritten before they were read", int64(lost))
}

func (k *kernelLog) close(*session) { k.log.Close() }
