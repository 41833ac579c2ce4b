package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	// streamRate is how many streams of HTTP/2 a second are asked for at a fixed rate.
	streamRate = 20_000
	// streamConnections have so many streams each, where a stream is asked for as soon as
	// another one is answered.
	streamConnections, streamsAtOnce = 10, 10
	// streamWarm is how long a command has met the streams before it is measured: what it
	// does from then on does not change.
	streamWarm = 6 * time.Second
	// streamKept is the least share of its throughput that a service keeps.
	streamKept = 0.97
)

// grpcServer answers every call of gRPC under TLS: address, certificate, key.
func grpcServer(args []string) {
	keys, err := credentials.NewServerTLSFromFile(args[1], args[2])
	if err != nil {
		fail("certificate", err)
	}
	l, err := net.Listen("tcp4", args[0])
	if err != nil {
		fail("listen", err)
	}
	get := grpc.MethodDesc{MethodName: "Get", Handler: func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		return &emptypb.Empty{}, read(&emptypb.Empty{})
	}}
	server := grpc.NewServer(grpc.Creds(keys))
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "shop.Cart", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{get}}, struct{}{})
	fail("serve", server.Serve(l))
}

// certificate makes one of 127.0.0.1 that signs itself.
func (s *stage) certificate() (cert, key string) {
	s.b.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.b.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		s.b.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		s.b.Fatal(err)
	}
	cert, key = filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			s.b.Fatal(err)
		}
	}
	return cert, key
}

// streams is a server of HTTP/2 under TLS, asked by h2load.
type streams struct {
	*stage
	port, pid int
	ask       []string // of h2load
}

// newGRPC is a service of gRPC in Go.
func newGRPC(s *stage) *streams {
	s.b.Helper()
	port := s.ports(1)[0]
	cert, key := s.certificate()
	message := filepath.Join(s.dir, "message")
	if err := os.WriteFile(message, make([]byte, 5), 0o644); err != nil { // an empty one, with its prefix
		s.b.Fatal(err)
	}
	s.b.Setenv("SLOWRAY_BENCH_ROLE", "grpc")
	pid := s.server(port, "/proc/"+strconv.Itoa(os.Getpid())+"/exe", fmt.Sprintf("127.0.0.1:%d", port), cert, key)
	os.Unsetenv("SLOWRAY_BENCH_ROLE")
	return &streams{s, port, pid, []string{"-d", message, "-H", "content-type: application/grpc", "-H", "te: trailers", fmt.Sprintf("https://127.0.0.1:%d/shop.Cart/Get", port)}}
}

// newSecureWeb is nginx with OpenSSL, one worker.
func newSecureWeb(s *stage) *streams {
	s.b.Helper()
	port := s.ports(1)[0]
	cert, key := s.certificate()
	pid := s.nginx(port, fmt.Sprintf(`
	server {
		listen 127.0.0.1:%d ssl http2;
		ssl_certificate %s;
		ssl_certificate_key %s;
		location / { return 200 %q; }
	}`, port, cert, key, strings.Repeat("x", 200)))
	return &streams{s, port, pid, []string{fmt.Sprintf("https://127.0.0.1:%d/", port)}}
}

// streamBlock is what came of a load for some time.
type streamBlock struct {
	perSecond float64       // answers that h2load counted
	cpu       time.Duration // for each: of server, h2load and slowray
	own       time.Duration // for each: of slowray's process
	server    time.Duration // for each: of the server, with its probes
}

// load asks at a rate, or, where that is 0, as fast as the server answers; slowray is its
// process, or 0.
func (s *streams) load(d time.Duration, rate, slowray int) (of streamBlock, err error) {
	args := []string{"h2load", "-c", strconv.Itoa(streamConnections), "-m", strconv.Itoa(streamsAtOnce), "-D", fmt.Sprintf("%.0f", max(1, d.Seconds()))}
	if rate > 0 {
		args = append(args, "--rps", strconv.Itoa(rate/streamConnections))
	}
	own := func() time.Duration {
		if slowray == 0 {
			return 0
		}
		return cpuOf(slowray)
	}
	before, mine := cpuOf(s.pid), own()
	text, ended, err := s.output(append(args, s.ask...)...)
	if err != nil {
		return of, err
	}
	server := cpuOf(s.pid) - before
	mine = own() - mine
	m := h2loadCounts.FindStringSubmatch(text)
	if m == nil {
		return of, fmt.Errorf("h2load: %s", text)
	}
	perSecond, _ := strconv.ParseFloat(m[1], 64)
	answered, _ := strconv.Atoi(m[2])
	if m[3] != "0" || answered == 0 {
		return of, fmt.Errorf("h2load: not all went well: %s", text)
	}
	n := time.Duration(answered)
	return streamBlock{perSecond, (server + cpuOfEnded(ended) + mine) / n, mine / n, server / n}, nil
}

// h2loadCounts finds answers a second, how many there were, and how many failed.
var h2loadCounts = regexp.MustCompile(`(?s)finished in [^,]+, ([0-9.]+) req/s.*?requests: .*? (\d+) succeeded, (\d+) failed`)

// streamPairs is what a command costs a load: in each pair a block without it, then the first
// seconds with it, two blocks once nothing changes any more, and one without it again.
type streamPairs struct{ rate, bare, kept, cost, own, server, first, noise sample }

func (s *streams) pairs(b *testing.B, p plan, name, slowray string, c costCommand, rate int) (of streamPairs) {
	b.Helper()
	block := func(d time.Duration, pid int) streamBlock {
		b.Helper()
		got, err := s.load(d, rate, pid)
		if err != nil {
			b.Fatal(err)
		}
		return got
	}
	block(p.length, 0) // warm
	for range p.rounds {
		unlock, err := p.hold()
		if err != nil {
			b.Fatal(err)
		}
		before := block(p.length, 0)
		stop, pid, err := c.start(b, slowray, s.port)
		if err != nil {
			b.Fatal(err)
		}
		first := block(streamWarm, pid)
		one, two := block(p.length, pid), block(p.length, pid)
		if _, err := stop(); err != nil {
			b.Fatal(err)
		}
		last := block(p.length, 0)
		unlock()
		perSecond, cpu := (before.perSecond+last.perSecond)/2, float64(before.cpu+last.cpu)/2
		of.rate = append(of.rate, perSecond)
		of.bare = append(of.bare, cpu/1e3)
		of.kept = append(of.kept, (one.perSecond+two.perSecond)/2/perSecond)
		of.cost = append(of.cost, float64(one.cpu+two.cpu)/2/cpu)
		of.own = append(of.own, float64(one.own+two.own)/2e3)
		of.server = append(of.server, float64(one.server+two.server)/float64(before.server+last.server))
		of.first = append(of.first, float64(first.cpu)/cpu)
		of.noise = append(of.noise, float64(last.cpu)/float64(before.cpu))
		n := len(of.rate) - 1
		progress(b, fmt.Sprintf("%s, %s: %.0f streams/s, kept %.3f; CPU of a stream %.1f µs, × %.3f, of it slowray's process %.2f µs, the server × %.3f (first %.0f s × %.3f; without it before and after × %.3f)",
			name, c.name, perSecond, of.kept[n], of.bare[n], of.cost[n], of.own[n], of.server[n], streamWarm.Seconds(), of.first[n], of.noise[n]))
	}
	return of
}

// BenchmarkStreams measures what is left of the throughput of services that speak HTTP/2 under TLS,
// whose functions are watched by uprobes: gRPC in Go, and nginx with OpenSSL, which h2load
// has, too. Both ends are on this host, each on a CPU of its own.
func BenchmarkStreams(b *testing.B) {
	p := newPlan(b, 6)
	if os.Getenv("SLOWRAY_BENCH_SECONDS") == "" {
		p.length = 2 * time.Second
	}
	slowray := built(b)
	for b.Loop() {
		for _, service := range []struct {
			name, short string
			start       func(*stage) *streams
		}{{"gRPC in Go", "grpc", newGRPC}, {"nginx with OpenSSL", "openssl", newSecureWeb}} {
			if only := os.Getenv("SLOWRAY_BENCH_LOADS"); only != "" && !slices.Contains(strings.Split(only, ","), service.short) {
				continue
			}
			s := newStage(b)
			s.pinned = true
			server := service.start(s)
			for _, rate := range []int{0, streamRate} {
				title := service.name + ", full speed"
				if rate > 0 {
					title = fmt.Sprintf("%s, %s streams asked for a second", service.name, thousands(rate))
				}
				for _, c := range costCommands[:2] {
					if p.only != nil && !slices.Contains(p.only, c.name) {
						continue
					}
					of := server.pairs(b, p, title, slowray, c, rate)
					reportFigures(b, title+", "+c.name,
						figure{name: "streams a second, without it", format: "%.0f", sample: of.rate},
						figure{name: "throughput kept", format: "%.3f", sample: of.kept, target: atLeast(streamKept)},
						figure{name: "µs of CPU for a stream, without it", format: "%.1f", sample: of.bare},
						figure{name: "CPU for a stream, times that without", format: "%.3f", sample: of.cost},
						figure{name: "… of the server alone", format: "%.3f", sample: of.server},
						figure{name: "… µs of it in slowray's process", format: "%.2f", sample: of.own},
						figure{name: "… in the first seconds", format: "%.3f", sample: of.first},
						figure{name: "… without it, after and before", format: "%.3f", sample: of.noise, note: "the noise of this machine"})
				}
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}
