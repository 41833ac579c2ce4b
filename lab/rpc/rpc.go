package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Quoter is what answers: an error is the status of the call.
type Quoter interface {
	Quote(ctx context.Context, route string) (price string, err error)
}

// tariffs is the service as protoc-gen-go-grpc would describe it.
var tariffs = grpc.ServiceDesc{
	ServiceName: "fares.Tariffs", HandlerType: (*Quoter)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Quote", Handler: quote}},
}

func quote(service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	route := new(wrapperspb.StringValue)
	if err := decode(route); err != nil {
		return nil, err
	}
	price, err := service.(Quoter).Quote(ctx, route.GetValue())
	if err != nil {
		return nil, err
	}
	return wrapperspb.String(price), nil
}

// Serve answers calls until it fails, under TLS where the name of a file with a key and a
// certificate is given.
func Serve(l net.Listener, pair string, service Quoter) error {
	var options []grpc.ServerOption
	if pair != "" {
		creds, err := credentials.NewServerTLSFromFile(pair, pair)
		if err != nil {
			return fmt.Errorf("rpc: %w", err)
		}
		options = append(options, grpc.Creds(creds))
	}
	s := grpc.NewServer(options...)
	s.RegisterService(&tariffs, service)
	return s.Serve(l)
}

// redial is how soon a client whose connection failed tries again: the lab's servers are
// there, or soon will be.
var redial = grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}, MinConnectTimeout: 10 * time.Second}

// Dial gives a connection to a service, which is made with the first call. Certificates are
// not verified. dial makes its connections; nil = as gRPC does.
func Dial(target string, secure bool, dial func(ctx context.Context, target string) (net.Conn, error)) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if secure {
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithConnectParams(redial)}
	if dial != nil {
		options = append(options, grpc.WithContextDialer(dial))
	}
	return grpc.NewClient("passthrough:///"+target, options...)
}

// Call makes one call. It waits for a connection.
func Call(ctx context.Context, over *grpc.ClientConn) error {
	return over.Invoke(ctx, "/"+tariffs.ServiceName+"/"+tariffs.Methods[0].MethodName, wrapperspb.String("AMS-LIS"), new(wrapperspb.StringValue), grpc.WaitForReady(true))
}
