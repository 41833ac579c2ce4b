package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
)

// role is the environment variable by which the program runs itself as one of the
// programs of the demonstration.
const role = "SLOWRAY_FLEETDEMO_ROLE"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// What is started is told to end when the thread that started it does (see begin).
	runtime.LockOSThread()
	var err error
	switch r := os.Getenv(role); r {
	case "":
		err = demo(ctx)
	case roleApp:
		err = serve(os.Args[1])
	case roleUsers:
		err = use(ctx, os.Args[1])
	case roleReport:
		err = lockRows(ctx, os.Args[1])
	default:
		err = fmt.Errorf("no role %q", r)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "fleetdemo:", err)
		os.Exit(1)
	}
}

// The two real hosts, on a net of their own.
const (
	appAddr = "10.213.7.2"
	dbAddr  = "10.213.7.3"
	appPort = 8680
	dbPort  = 3726
)

func demo(ctx context.Context) error {
	slowray := flag.String("slowray", "bin/slowray", "the program to show")
	hosts := flag.Int("hosts", 50, "simulated hosts")
	calm := flag.Duration("calm", 100*time.Second, "how long all is well at first")
	fault := flag.Duration("fault", 60*time.Second, "how long the rows are locked then")
	keep := flag.Bool("keep", false, "leave what was printed and recorded where it is")
	flag.Parse()
	if os.Getuid() != 0 {
		return errors.New("needs root, for network namespaces and BPF")
	}
	exe, err := filepath.Abs(*slowray)
	if err != nil {
		return err
	}
	s := &stage{began: time.Now(), early: make(chan error, 1)}
	defer s.close()
	if s.dir, err = os.MkdirTemp("", "slowray-fleet-demo-"); err != nil {
		return err
	}
	s.keep = *keep
	s.say("starting two shards of ClickHouse")
	cluster, err := clickhousetest.Start(ctx, filepath.Join(s.dir, "clickhouse"), clickhousetest.Layout{Shards: 2})
	if err != nil {
		return err
	}
	s.atEnd(cluster.Close)
	url := cluster.URL("slowray")
	if err := s.run(ctx, exe, "fleet", "init", url); err != nil {
		return err
	}
	s.say(fmt.Sprintf("%d simulated hosts send to them", *hosts))
	length := *calm + *fault + 30*time.Second
	if err := s.start("simulated", "", exe, "lab", "fleet", "--hosts", strconv.Itoa(*hosts), "--for", length.String(), "--every", "10s", "--to", url); err != nil {
		return err
	}
	s.say("two real hosts: app-1 calls db-1 (MariaDB), slowray record on each")
	if err := s.realHosts(ctx, exe, cluster); err != nil {
		return err
	}
	s.say("all is well for " + calm.String())
	if err := s.wait(ctx, *calm); err != nil {
		return err
	}
	s.say("on db-1 a report locks the rows that the application changes, for " + fault.String())
	if err := s.play(roleReport, hostDB, source()); err != nil {
		return err
	}
	if err := s.wait(ctx, *fault); err != nil {
		return err
	}
	s.say("slowray fleet why")
	fmt.Println()
	return s.ask(ctx, exe, "fleet", "why", "--from", url, "--for", max(*fault+10*time.Second, time.Minute).String())
}
