package tlslib

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/exits"
	"github.com/slowray/slowray/internal/sense/gocode"
)

// Functions of Go's crypto/tls, and of what speaks HTTP/2 above it (clear_go.h).
const (
	GoRead      = Free + 1 + iota // where (*halfConn).decrypt returns the bytes of a record
	GoWrite                       // (*Conn).Write
	GoHandshake                   // a new (*Conn)
	GoHTTP2                       // a connection of HTTP/2 begins
)

// Go says whether it is a function of a Go program.
func (k Kind) Go() bool { return k >= GoRead && k <= GoHTTP2 }

// OncePerConnection says whether it is called once for a connection: these are all that is
// needed to know that HTTP/2 is spoken, and until when, while nothing else is watched. An
// object that was freed may be another connection's, at the same address.
func (k Kind) OncePerConnection() bool { return k == Protocol || k == GoHTTP2 || k == Free }

const (
	goDecrypt = "crypto/tls.(*halfConn).decrypt"
	goCaller  = "crypto/tls.(*Conn).readRecordOrCCS" // of that
)

var goFunctions = map[string]Kind{
	goDecrypt: GoRead, "crypto/tls.(*Conn).Write": GoWrite,
	"crypto/tls.(*Conn).serverHandshake": GoHandshake, "crypto/tls.(*Conn).clientHandshake": GoHandshake,
}

// goHTTP2 are the ends of names of functions that begin a connection of HTTP/2: of net/http,
// x/net/http2, wherever it is vendored, and gRPC.
var goHTTP2 = []string{
	"http2.(*Server).ServeConn", "http2.(*Server).serveConn", "http2.(*Transport).newClientConn",
	"net/http.(*http2Server).ServeConn", "net/http.(*http2Server).serveConn", "net/http.(*http2Transport).newClientConn",
	"grpc/internal/transport.NewServerTransport", "grpc/internal/transport.NewHTTP2Client",
}

const (
	maxGoCode   = 1 << 20
	maxGoOffset = 1<<16 - 1
)

// goSites are the functions of a Go program; without any, what says by what it may encrypt
// that cannot be hooked.
//
// What is hooked in the middle of a function is verified in its code: that stack checks are
// where functions are said to begin, that decrypt keeps its receiver where the program
// looks for it, and where in a Conn that is. So a Go before 1.17 has no sites, which has
// arguments elsewhere, nor one that is built otherwise.
func goSites(image *elffile.File) (sites []Site, what string) {
	what = "crypto/tls of " + cmp.Or(image.GoVersion(), "an unknown version of Go")
	table, err := image.GoFunctions()
	if err != nil || table == nil {
		return nil, what
	}
	named := map[string]elffile.GoFunction{}
	var http2 []elffile.GoFunction
	err = table.Each(func(f elffile.GoFunction) bool {
		if _, ok := goFunctions[f.Name]; ok || f.Name == goCaller {
			named[f.Name] = f
		} else if slices.ContainsFunc(goHTTP2, func(end string) bool { return strings.HasSuffix(f.Name, end) }) {
			http2 = append(http2, f)
		}
		return true
	})
	_, encrypts := named[goDecrypt]
	switch {
	case err == nil && !encrypts:
		return nil, "" // no TLS is linked into it
	case err != nil || named[goCaller].Entry == 0 || named["crypto/tls.(*Conn).Write"].Entry == 0:
		return nil, what
	}
	code := func(f elffile.GoFunction) []byte {
		return image.Loaded(f.Entry, min(f.End-f.Entry, maxGoCode))
	}
	inFile := func(f elffile.GoFunction) (offset uint64, ok bool) {
		p := image.Executable(f.Entry)
		if p == nil {
			return 0, false
		}
		return f.Entry - p.Vaddr + p.Off, true
	}
	enter := func(f elffile.GoFunction, k Kind) bool {
		at, sure := gocode.AfterStackCheck(image.Machine, code(f))
		begin, ok := inFile(f)
		if !ok || !sure || at == 0 {
			return false
		}
		sites = append(sites, Site{Kind: k, Entry: begin + at})
		return true
	}
	decrypt := named[goDecrypt]
	text := code(decrypt)
	member, ok := gocode.FirstArgument(image.Machine, code(named[goCaller]), named[goCaller].Entry, decrypt.Entry)
	at, known := exits.Find(image.Machine, text, func(to int64) bool { return to < 0 || uint64(to) >= uint64(len(text)) })
	check, sure := gocode.AfterStackCheck(image.Machine, text)
	begin, inCode := inFile(decrypt)
	if !sure || check == 0 || !known || len(at) == 0 || len(at) > maxExits || !inCode || !ok || member > maxGoOffset || !gocode.KeepsReceiver(image.Machine, text) {
		return nil, what
	}
	for i := range at {
		at[i] += begin
	}
	sites = append(sites, Site{Kind: GoRead, Exits: at, Member: uint16(member)})
	for name, f := range named {
		if k := goFunctions[name]; k > GoRead && !enter(f, k) {
			return nil, what
		}
	}
	for _, f := range http2[:min(len(http2), maxSites)] {
		enter(f, GoHTTP2) // without it HTTP/2 is found where requests overlap
	}
	return sites, ""
}
