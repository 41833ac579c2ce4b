// Package web serves the history over HTTP: the answers that docs/api.md describes,
// and the page of internal/web/page that reads them.
//
// In: a Source, which internal/store's Reader is. Out: JSON and CSV, summed up
// here so that a page never gets more than it can draw. Nothing can be changed
// through it, and it asks nothing of anybody else. Whoever may ask is reported in
// docs/access.md: on an address that others reach only with a token, on loopback
// only under the names of loopback.
//
//	l, err := web.Listen(addr) // "127.0.0.1:7788", "unix:/run/slowray.sock"
//	opt := web.Options{Loopback: l.Loopback(), …}
//	if l.Public() {
//		opt.Token = web.NewToken() // and tell web.URL(l.Address(), opt.Token) once
//	}
//	h, err := web.New(reader, opt)
//	err = web.Serve(ctx, l, h) // until ctx ends
//
// NewFleet serves the page of a fleet, from an archive over many hosts, by the same rules.
package web
