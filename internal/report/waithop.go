package report

import (
	"fmt"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// whoText is a thread in a column: its process's name and number, its own too
// when it is another.
func whoText(h *observe.WaitHop) string {
	name := printable.Text(h.Process.Comm)
	if utf8.RuneCountInString(name) > 16 {
		name = string([]rune(name)[:16])
	}
	if h.Goroutine != 0 {
		return fmt.Sprintf("%s goroutine %d", name, h.Goroutine)
	}
	if h.TID == h.Process.PID {
		return fmt.Sprintf("%s %d", name, h.TID)
	}
	return fmt.Sprintf("%s %d/%d", name, h.Process.PID, h.TID)
}

// containerText names the container that a process is in.
func containerText(p *observe.WaitProcess) string {
	if p.ContainerName == "" {
		return p.Container
	}
	return fmt.Sprintf("%s (%s)", p.ContainerName, p.Container)
}

// linkText is why the hop before waits for this one.
func linkText(h *observe.WaitHop, before *observe.WaitProcess) string {
	s := h.Why + " [" + string(h.How) + "]"
	if h.Process.Container != before.Container && h.Process.Container != "" {
		s += ", in container " + containerText(&h.Process)
	} else if h.Process.Unit != before.Unit && h.Process.Unit != "" {
		s += ", in " + h.Process.Unit
	}
	return s
}

// waitsText is what a thread waits for itself, and how long.
func waitsText(h *observe.WaitHop) string {
	s := doing(h)
	if h.Comm != h.Process.Comm && h.TID != h.Process.PID {
		s = h.Comm + ": " + s
	}
	if h.Object != "" {
		s += " " + h.Object
	}
	switch {
	case h.Kind == observe.WaitRunnable && h.Goroutine != 0:
	case h.Kind == observe.WaitRunnable:
		s += fmt.Sprintf(" (%s on a CPU, %s waiting for one)", figure.Seconds(float64(h.RunNS)/1e9), figure.Seconds(float64(h.DelayNS)/1e9))
	case h.Moving:
		s += ", now and then"
	case h.ForNS > 0:
		s += ", at least " + figure.Seconds(float64(h.ForNS)/1e9)
	}
	if h.Detail != "" {
		s += "; " + h.Detail
	}
	if h.QuietNS > h.ForNS && h.QuietNS > 0 {
		s += "; nothing has passed for " + figure.Seconds(float64(h.QuietNS)/1e9)
	}
	return s
}

// doing is what a thread is in, in a word or two.
func doing(h *observe.WaitHop) string {
	switch h.Kind {
	case observe.WaitStopped:
		return "stopped"
	case observe.WaitRunnable:
		return "running"
	case observe.WaitEnded:
		return "ended"
	}
	if h.Goroutine != 0 && h.Syscall == "" {
		return "waits for"
	}
	if h.Syscall != "" {
		return h.Syscall
	}
	if h.Wchan != "" {
		return "in the kernel (" + h.Wchan + ")"
	}
	return "waits"
}
