package request

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/sense/tlslib"
)

// registers are where arguments and results lie in struct pt_regs.
var registers = map[string]struct {
	args   [4]uint32
	result uint32
}{
	"amd64": {[4]uint32{112, 104, 96, 88}, 80}, // DI, SI, DX, CX; AX
	"arm64": {[4]uint32{0, 8, 16, 24}, 0},
}

func (r *Recorder) loadClear() error {
	if err := bpf.HaveLoops(); err != nil {
		return err
	}
	here, ok := registers[runtime.GOARCH]
	if !ok {
		return errors.New("not on this architecture")
	}
	spec, err := bpf.LoadClear()
	if err != nil {
		return err
	}
	c := &r.clear
	if c.multi = features.HaveBPFLinkUprobeMulti() == nil; c.multi {
		spec.Programs[bpf.ClearProgClearEnter].AttachType = ebpf.AttachTraceUprobeMulti
		spec.Programs[bpf.ClearProgClearLeave].AttachType = ebpf.AttachTraceUprobeMulti
		spec.Programs[bpf.ClearProgClearGo].AttachType = ebpf.AttachTraceUprobeMulti
	}
	variables := goVariables(runtime.GOARCH)
	variables[bpf.ClearVarRegArgs], variables[bpf.ClearVarRegResult] = here.args, here.result
	for name, value := range variables {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	for name, program := range map[string]string{"tcp_sendmsg_locked": bpf.ClearProgClearSending, "sock_send_length": bpf.ClearProgClearSent} {
		if !hasTracepoint(name) { // loaded, and not attached
			spec.Programs[program] = spec.Programs[bpf.ClearProgClearArrived]
		}
	}
	if err := r.loadStreams(spec, &c.objects); err != nil {
		return err
	}
	c.loaded = true
	c.duty.price = r.measureProbe()
	r.doLess()
	return nil
}

// socketHooks are the programs that see what passes sockets.
func (c *clearSide) socketHooks() []*ebpf.Program {
	programs := []*ebpf.Program{c.objects.Http2Closed, c.objects.ClearReceived, c.objects.ClearArrived}
	switch {
	case hasTracepoint("tcp_sendmsg_locked"):
		programs = append(programs, c.objects.ClearSending)
	case hasTracepoint("sock_send_length"):
		programs = append(programs, c.objects.ClearSent)
	}
	return programs
}

// attach watches functions of a library: first where they are left, so that no call that is
// seen to begin is not seen to end.
func (c *clearSide) attach(l *library, which func(tlslib.Kind) bool) (links []io.Closer, err error) {
	ex, err := link.OpenExecutable(l.file.Path())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeAll(links)
			links = nil
		}
	}()
	for _, program := range []*ebpf.Program{c.objects.ClearLeave, c.objects.ClearEnter, c.objects.ClearGo} {
		var at link.UprobeMultiOptions
		for _, s := range l.file.Sites {
			if !which(s.Kind) || s.Kind.Go() != (program == c.objects.ClearGo) {
				continue
			}
			places := s.Exits
			if program != c.objects.ClearLeave && s.Entry != 0 {
				places = []uint64{s.Entry}
			}
			for _, place := range places {
				at.Addresses = append(at.Addresses, place)
				at.Cookies = append(at.Cookies, uint64(s.Kind)|l.number<<8|uint64(s.Member)<<16)
			}
		}
		if program == c.objects.ClearGo && len(at.Addresses) > 0 {
			_ = c.objects.WatchesGo.Set(uint8(1)) // mapped memory: it cannot fail
		}
		if c.multi && len(at.Addresses) > 0 {
			l, err := ex.UprobeMulti(nil, program, &at)
			if err != nil {
				return links, err
			}
			links = append(links, l)
			continue
		}
		for i, address := range at.Addresses {
			l, err := ex.Uprobe("", program, &link.UprobeOptions{Address: address, Cookie: at.Cookies[i]})
			if err != nil {
				return links, err
			}
			links = append(links, l)
		}
	}
	return links, nil
}
