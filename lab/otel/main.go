// Command otel is a service, or its callers, as people instrument them with OpenTelemetry's
// SDK: it passes the trace context on in traceparent and sends its spans to a collector by
// OTLP/HTTP. It is a module of its own, because slowray does not need the SDK.
//
//	otel -name stock -otlp URL              serves, and writes its address
//	otel -name cart -next URL -otlp URL     serves, and calls the next service for each request
//	otel -load URL -requests N -otlp URL    calls, many at once
//
// A service ends when its standard input does.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

func main() {
	name := flag.String("name", "load", "of the service")
	next := flag.String("next", "", "URL of the service that it calls")
	load := flag.String("load", "", "URL to call")
	requests := flag.Int("requests", 100, "with -load: how many")
	workers := flag.Int("workers", 8, "with -load: how many at once")
	otlp := flag.String("otlp", "", "URL of the collector")
	flag.Parse()
	ctx := context.Background()
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(*otlp+"/v1/traces"), otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
	if err != nil {
		log.Fatal(err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter, trace.WithMaxQueueSize(1<<15)),
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", *name))))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	client := &http.Client{Transport: otelhttp.NewTransport(&http.Transport{MaxIdleConnsPerHost: *workers})}
	if *load != "" {
		err = call(client, *load, *requests, *workers)
	} else {
		err = serve(client, *next)
	}
	if err == nil {
		err = provider.Shutdown(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve answers until standard input ends.
func serve(client *http.Client, next string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	server := &http.Server{Handler: otelhttp.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if next == "" {
			time.Sleep(time.Millisecond)
		} else if err := get(r.Context(), client, next+r.URL.Path); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}), "request")}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Shutdown(context.Background())
	}()
	if err := server.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

func get(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err = io.Copy(io.Discard, answer.Body); err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return err
}

// call calls a URL, some at once.
func call(client *http.Client, url string, requests, workers int) error {
	todo, failed := make(chan struct{}), make(chan error, workers)
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for range todo {
				if err := get(context.Background(), client, url+"/cart/7"); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	for range requests {
		select {
		case todo <- struct{}{}:
		case err := <-failed:
			return err
		}
	}
	close(todo)
	work.Wait()
	return nil
}
