package report

import (
	"net"
	"strconv"

	"github.com/slowray/slowray/internal/printable"
)

type color string

const (
	bold   color = "1"
	dim    color = "2"
	red    color = "1;31"
	green  color = "32"
	yellow color = "33"
)

func (p *printer) paint(c color, text string) string {
	if !p.Color || c == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

func rate(f *float64) string {
	if f == nil {
		return "-"
	}
	return strconv.FormatFloat(*f, 'f', 1, 64)
}

// joinHostPort is safe to print: the address of a saved window may be anything.
func joinHostPort(addr string, port int) string {
	addr = printable.Text(addr)
	if port == 0 {
		return addr
	}
	return net.JoinHostPort(addr, strconv.Itoa(port))
}
