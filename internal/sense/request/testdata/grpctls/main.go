// Command grpctls serves and calls gRPC under TLS, and says what passed and when.
//
//	grpctls serve CERTIFICATE KEY
//	grpctls call PORT CONNECTIONS AT-ONCE TURNS [long [1.2]]
//
// Callers write the keys of their connections to the file that SSLKEYLOGFILE names, and speak no
// later version of TLS than they are told. The server prints its port. Either end prints a line for each stream that is over: the port
// of the caller, its number, ns (CLOCK_MONOTONIC) at which it was asked, answered and over,
// path:status, and ns at which it began. The status is that of gRPC, or who reset it.
//
// A call asks for /slowray.Test/WHAT with a delay:
//
//	Get    an answer after it
//	Fail   NotFound after it
//	Big    300,000 bytes after it
//	Many   ten messages, one each time it has passed
//	Talk   each message back, until there are no more
//	Hang   nothing: the caller gives up after it
//	Abort  after the first message Unavailable, while the caller has more to say
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slowray/slowray/internal/sense/request/testdata/h2go/framelog"
)

// watched are credentials whose connections say what passes them in the clear.
type watched struct {
	credentials.TransportCredentials
}

var (
	mu  sync.Mutex
	out = bufio.NewWriterSize(os.Stdout, 1<<20)
)

func over(s *framelog.Stream) {
	mu.Lock()
	defer mu.Unlock()
	status := s.GRPC
	if s.Reset != "" {
		status = s.Reset
	}
	fmt.Fprintf(out, "%d %d %d %d %d %s:%s %d\n", s.Port, s.ID, s.Asked, s.Answered, s.Ended, s.Path, status, s.First)
}

// flush prints what was said: not where frames pass, whose time that would take.
func flush() {
	mu.Lock()
	defer mu.Unlock()
	out.Flush()
}

func (w watched) ServerHandshake(plain net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := w.TransportCredentials.ServerHandshake(plain)
	if err != nil {
		return c, info, err
	}
	return framelog.New(c, true, over), info, nil
}

func (w watched) ClientHandshake(ctx context.Context, authority string, plain net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := w.TransportCredentials.ClientHandshake(ctx, authority, plain)
	if err != nil {
		return c, info, err
	}
	return framelog.New(c, false, over), info, nil
}

func (w watched) Clone() credentials.TransportCredentials {
	return watched{w.TransportCredentials.Clone()}
}

type message = wrapperspb.BytesValue

// serve does what is asked for.
func serve(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var m message
	if err := stream.RecvMsg(&m); err != nil {
		return err
	}
	delay := time.Duration(binary.BigEndian.Uint16(m.Value)) * time.Millisecond
	switch path.Base(method) {
	case "Many":
		for range 10 {
			time.Sleep(delay)
			if err := stream.SendMsg(&m); err != nil {
				return err
			}
		}
		return nil
	case "Talk":
		for {
			if err := stream.SendMsg(&m); err != nil {
				return err
			}
			if err := stream.RecvMsg(&m); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
	case "Hang":
		<-stream.Context().Done()
		return status.FromContextError(stream.Context().Err()).Err()
	case "Abort":
		time.Sleep(delay)
		return status.Error(codes.Unavailable, "as asked for")
	case "Fail":
		time.Sleep(delay)
		return status.Error(codes.NotFound, "as asked for")
	case "Big":
		m.Value = make([]byte, 300_000)
	}
	time.Sleep(delay)
	return stream.SendMsg(&m)
}

// call has a call, and returns when it is over.
func call(c *grpc.ClientConn, what string, delay time.Duration, pieces int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/slowray.Test/"+what)
	if err != nil {
		log.Fatal(err)
	}
	m := message{Value: binary.BigEndian.AppendUint16(nil, uint16(delay/time.Millisecond))}
	// What comes of it the log says.
	_ = s.SendMsg(&m)
	switch what {
	case "Talk":
		for range pieces {
			_ = s.RecvMsg(&m)
			time.Sleep(delay)
			_ = s.SendMsg(&m)
		}
		_ = s.RecvMsg(&m)
	case "Hang":
		time.Sleep(delay)
		cancel()
		return
	}
	if what != "Abort" {
		_ = s.CloseSend()
	}
	for s.RecvMsg(&m) == nil {
	}
}

func main() {
	log.SetFlags(0)
	if os.Args[1] == "serve" {
		cert, err := tls.LoadX509KeyPair(os.Args[2], os.Args[3])
		if err != nil {
			log.Fatal(err)
		}
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(l.Addr().(*net.TCPAddr).Port)
		go func() {
			for range time.Tick(10 * time.Millisecond) {
				flush()
			}
		}()
		log.Fatal(grpc.NewServer(grpc.Creds(watched{credentials.NewServerTLSFromCert(&cert)}), grpc.UnknownServiceHandler(serve)).Serve(l))
	}
	var numbers [3]int
	for i := range numbers {
		numbers[i], _ = strconv.Atoi(os.Args[3+i])
	}
	connections, atOnce, turns := numbers[0], numbers[1], numbers[2]
	long := len(os.Args) > 6
	config := &tls.Config{InsecureSkipVerify: true}
	if len(os.Args) > 7 && os.Args[7] == "1.2" {
		config.MaxVersion = tls.VersionTLS12
	}
	if name := os.Getenv("SSLKEYLOGFILE"); name != "" {
		keys, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			log.Fatal(err)
		}
		config.KeyLogWriter = keys
	}
	var all sync.WaitGroup
	for range connections {
		c, err := grpc.NewClient("127.0.0.1:"+os.Args[2], grpc.WithTransportCredentials(watched{credentials.NewTLS(config.Clone())}))
		if err != nil {
			log.Fatal(err)
		}
		defer flush()
		defer c.Close()
		for i := range atOnce {
			all.Go(func() {
				for turn := range turns {
					k := i + turn
					delay := time.Duration(3+2*(k%16)+turn) * time.Millisecond
					call(c, []string{"Get", "Get", "Fail", "Big", "Get", "Many", "Talk"}[k%7], delay, 10)
				}
			})
		}
		if long {
			all.Go(func() { call(c, "Talk", 20*time.Millisecond, 110) })
			all.Go(func() { call(c, "Hang", 60*time.Millisecond, 0) })
			all.Go(func() { call(c, "Abort", 60*time.Millisecond, 0) })
		}
	}
	all.Wait()
}
