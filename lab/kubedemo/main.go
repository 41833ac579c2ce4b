package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/lab/kube"
)

func main() {
	kube.InitMain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := demo(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		os.Exit(130) // as a shell tells of Ctrl-C
	default:
		fmt.Fprintln(os.Stderr, "kubedemo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context) (err error) {
	parts := flag.String("parts", "", "the directory that script/kube.sh prints")
	hold := flag.Bool("hold", false, "only bring up the node and the shop, and hold them until Ctrl-C")
	flag.Parse()
	began := time.Now()
	say := func(text string) { fmt.Printf("%4d s  %s\n", int(time.Since(began).Seconds()), text) }
	say("a Kubernetes node on this machine")
	n, err := kube.StartShop(ctx, kube.Options{Parts: *parts, Say: func(text string) { say("  " + text) }})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, n.Close())
		say("the node is ended and removed")
	}()
	c, err := n.Client()
	if err != nil {
		return err
	}
	say("the shop: client asks cart, cart asks stock")
	if err := c.Deploy(ctx); err != nil {
		return err
	}
	if *hold {
		say("up; Ctrl-C ends it. To look at it:")
		fmt.Println("        " + strings.Join(n.Enter(), " ") + " kubectl get pods -A -o wide")
		select {
		case <-ctx.Done():
			return nil
		case <-n.Gone():
			return n.Err()
		}
	}
	return nil
}
