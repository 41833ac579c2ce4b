package server

import (
	"strconv"
	"time"

	"github.com/slowray/slowray/lab/sandbox"
)

// steerScript has the receiving device hand its packets to CPU 0: over a plain
// veth pair they are dealt with in the sender's own time.
const steerScript = `mount -t sysfs sysfs /sys && echo 1 >/sys/class/net/eth0/queues/rx-0/rps_cpus`

// floodTime bounds a flood, should nothing else end it.
const floodTime = time.Minute

// flood has a client send SYNs to the service as fast as one CPU can.
func (s *starter) flood() error {
	if err := s.halfOpen(); err != nil || !s.v.Flood {
		return err
	}
	if _, err := s.box.Server.Output(s.ctx, "unshare", "--mount", "--propagation", "private", "sh", "-c", steerScript); err != nil {
		return err
	}
	_, err := s.box.Client.Start(s.ctx, sandbox.Spec{Args: []string{
		"timeout", strconv.Itoa(int(floodTime.Seconds())), "taskset", "--cpu-list", "1",
		"hping3", "--quiet", "--syn", "--flood", "--destport", strconv.Itoa(s.v.FrontPort), s.v.ServerAddr,
	}})
	return err
}
