package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/export"
	"github.com/slowray/slowray/internal/fleet/ship"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove/journal"
	"github.com/slowray/slowray/internal/prove/results"
	"github.com/slowray/slowray/internal/record"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/internal/web"
)

// listenOff is the --listen that serves nothing.
const listenOff = "off"

// tokenVariable is where a token for the page may be given; otherwise one is
// made where it is needed.
const tokenVariable = "SLOWRAY_TOKEN"

// servedPage is a page and its interface, and of a recorder /metrics.
type servedPage struct {
	listener *web.Listener // nil when nothing is served
	token    string
	names    []string
	reader   *store.Reader
	exporter *export.Exporter
	targets  func() []ship.Status
}

// listenPage opens the address of a page early: one that is taken is a reason not to begin.
func listenPage(address string, names []string) (*servedPage, error) {
	p := &servedPage{names: names}
	if address == listenOff {
		return p, nil
	}
	var err error
	if p.listener, err = web.Listen(address); err != nil {
		if taken := inUse(address); taken != nil {
			return nil, taken
		}
		return nil, err
	}
	p.token = os.Getenv(tokenVariable)
	if p.token == "" && p.listener.Public() {
		p.token = web.NewToken()
	}
	return p, nil
}

// address is how the page is opened; empty when there is none.
func (p *servedPage) address() string {
	switch {
	case p.listener == nil:
		return ""
	case p.port() == 0:
		return p.listener.Address()
	}
	return web.URL(p.listener.Address(), p.token)
}

// publicAddress is address without the token, to be sent to others.
func (p *servedPage) publicAddress() string {
	if p.port() == 0 {
		return ""
	}
	return web.URL(p.listener.Address(), "")
}

// port is the TCP port that is listened on, 0 when there is none.
func (p *servedPage) port() uint16 {
	if p.listener == nil {
		return 0
	}
	if at, ok := p.listener.Addr().(*net.TCPAddr); ok {
		return uint16(at.Port)
	}
	return 0
}

// serve answers until ctx is done. trouble gets what ends it before.
func (p *servedPage) serve(ctx context.Context, rec *record.Recorder, dir string, trouble func(error)) (wait func(), err error) {
	if p.listener == nil {
		return func() {}, nil
	}
	if p.reader, err = store.OpenReader(dir); err != nil {
		return nil, err
	}
	opt := web.Options{
		Version: version(), Recording: true, Token: p.token, Loopback: p.listener.Loopback(), Names: p.names,
		Stats: func() (store.Stats, float64) {
			s := rec.Status()
			return s.Store, s.CPUShare * float64(runtime.NumCPU())
		},
		Losses:  func() []observe.Loss { return rec.Status().Losses },
		Metrics: p.exporter.Handler(),
		Proofs:  results.Dir(journal.DefaultDir),
		Targets: p.targets,
	}
	if h, err := host.Default().Host(); err == nil {
		opt.Host = diagnose.ReportHost{Name: h.Name, Kernel: h.Kernel, CPUs: h.CPUs, BootID: h.BootID}
	}
	handler, err := web.New(p.reader, opt)
	if err != nil {
		return nil, err
	}
	var done sync.WaitGroup
	done.Go(func() {
		if err := web.Serve(ctx, p.listener, handler); err != nil {
			trouble(fmt.Errorf("the page is served no more: %w", err))
		}
	})
	return done.Wait, nil
}

// close ends what serve began, or listen when nothing was served.
func (p *servedPage) close() {
	if p.listener != nil {
		_ = p.listener.Close() // Serve has closed it, but for when it never began
	}
	if p.reader != nil {
		_ = p.reader.Close()
	}
}
