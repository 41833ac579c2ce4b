package bpf

import (
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// CgroupProgram is a program, and where in a control group it is run.
type CgroupProgram struct {
	At      ebpf.AttachType
	Program *ebpf.Program
}

// AttachCgroup attaches programs to a control group of version 2 and all below it.
// Closing a link detaches its program; those that were attached before an error are
// returned next to it.
func AttachCgroup(path string, programs ...CgroupProgram) (links []io.Closer, err error) {
	for _, p := range programs {
		l, err := link.AttachCgroup(link.CgroupOptions{Path: path, Attach: p.At, Program: p.Program})
		if err != nil {
			return links, fmt.Errorf("attach to control group %s: %w", path, err)
		}
		links = append(links, l)
	}
	return links, nil
}
