package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	"github.com/slowray/slowray/internal/shell"
)

// role is the environment variable by which the program runs itself as one of the
// programs of the demonstration.
const role = "SLOWRAY_FLEETDEMO_ROLE"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var err error
	switch r := os.Getenv(role); r {
	case "":
		err = demo(ctx)
	case roleApp:
		stop() // it ends as it is asked to, with nothing to put away
		err = serve(os.Args[1])
	case roleUsers:
		err = use(ctx, os.Args[1])
	case roleReport:
		err = lockRows(ctx, os.Args[1])
	default:
		err = fmt.Errorf("no role %q", r)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		os.Exit(130) // as a shell tells of Ctrl-C
	default:
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

// shipEvery is how much a batch of the simulated hosts holds, in seconds. Each costs the
// shards the same, whatever is in it.
const shipEvery = 10

func demo(ctx context.Context) error {
	slowray := flag.String("slowray", "bin/slowray", "the program to show")
	hosts := flag.Int("hosts", 50, "simulated hosts")
	calm := flag.Duration("calm", 0, "how long all is well at least")
	fault := flag.Duration("fault", 30*time.Second, "how long the rows are locked at least")
	patience := flag.Duration("patience", 5*time.Minute, "how long is waited until enough is known, and then until it is found")
	_, terminal := commandline.TerminalColumns(os.Stdout)
	hold := flag.Bool("hold", terminal, "leave the fleet there afterwards, to look at, until Ctrl-C")
	keep := flag.Bool("keep", false, "leave what was printed and recorded where it is")
	flag.Parse()
	if os.Getuid() != 0 {
		return errors.New("needs root, for network namespaces and BPF")
	}
	exe, err := filepath.Abs(*slowray)
	if err != nil {
		return err
	}
	s := &stage{began: time.Now(), early: make(chan error, 1), spaces: map[string]*os.File{}}
	defer s.close()
	sweep()
	if s.dir, err = os.MkdirTemp("", fmt.Sprintf("%s%d-", dirPrefix, os.Getpid())); err != nil {
		return err
	}
	s.keep = *keep
	s.say("starting two shards of ClickHouse")
	cluster, err := clickhousetest.Start(ctx, filepath.Join(s.dir, "clickhouse"), clickhousetest.Layout{Shards: 2, Tidy: true})
	if err != nil {
		return err
	}
	s.atEnd(cluster.Close)
	url := cluster.URL("slowray")
	if err := s.run(ctx, exe, "fleet", "init", url); err != nil {
		return err
	}
	s.say(fmt.Sprintf("%d simulated hosts send to them", *hosts))
	length := 2**patience + *calm + *fault
	if err := s.start("simulated", "", exe, "lab", "fleet", "--hosts", strconv.Itoa(*hosts), "--for", length.String(), "--every", fmt.Sprintf("%ds", shipEvery), "--to", url); err != nil {
		return err
	}
	s.say("two real hosts: app-1 calls db-1 (MariaDB), slowray record on each")
	if err := s.realHosts(ctx, exe, cluster); err != nil {
		return err
	}
	// Who asks waits for the batches of those that keep seconds back longest.
	from := fmt.Sprintf("%s&linger=%ds", url, shipEvery)
	w, err := newWatch(s, from)
	if err != nil {
		return err
	}
	defer w.close()
	s.say("all is well; what is usual is learned")
	if err := w.until(ctx, *calm, *patience, w.known); err != nil {
		return err
	}
	s.say("on db-1 a report locks the rows that the application changes")
	injected := time.Now()
	if err := s.play(roleReport, hostDB, source()); err != nil {
		return err
	}
	if err := w.until(ctx, *fault, *patience, func(ctx context.Context) (bool, string, float64, error) { return w.found(ctx, injected) }); err != nil {
		return err
	}
	s.say("slowray fleet why")
	s.hush()
	fmt.Println()
	process := fmt.Sprintf("mariadbd (pid %d)", s.pid("mariadbd"))
	err = s.ask(ctx, []string{"on " + hostDB, process}, exe, "fleet", "why", "--from", from, "--for", max(time.Since(injected)+5*time.Second, time.Minute).Truncate(time.Second).String())
	if err != nil || !*hold {
		return err
	}
	fmt.Printf("\nThe fleet stays until Ctrl-C. In another terminal:\n\n%s\n%s fleet top\n%[2]s fleet page\n%[2]s fleet watch\n\n%[3]s and %[4]s are network namespaces of this machine: what begins with ssh runs here without it.\n",
		shell.Line("export SLOWRAY_FLEET=%s", shell.Word(from)), shell.Line("%s", shell.Path(*slowray)), hostApp, hostDB)
	<-ctx.Done()
	return nil
}
