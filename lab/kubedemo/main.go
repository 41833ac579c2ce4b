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

// fault is what somebody does to the shop, and what the answer about cart has to name.
type fault struct {
	text   string
	inject func(context.Context, *kube.Client) error
	want   []string
	// shown waits until the fault has something to show.
	shown func(context.Context, *kube.Client) error
}

var faults = []fault{
	{
		"somebody lowers the CPU limit of cart to 50m",
		func(ctx context.Context, c *kube.Client) error {
			return c.Patch(ctx, kube.ShopNamespace, "cart", kube.CartCPULimit)
		},
		[]string{"deploy/cart", "[cpu-quota-throttled]", "--limits=cpu="},
		func(ctx context.Context, c *kube.Client) error {
			return c.RolledOut(ctx, kube.ShopNamespace, "cart")
		},
	},
	{
		"the limit is back; somebody renames the label that the service stock looks for, and rolls cart out",
		func(ctx context.Context, c *kube.Client) error {
			if err := c.PatchService(ctx, kube.ShopNamespace, "stock", kube.StockSelector); err != nil {
				return err
			}
			if err := c.Endless(ctx, kube.ShopNamespace, "stock"); err != nil {
				return err
			}
			// Connections that there are go on to the pods that were behind it.
			return c.Patch(ctx, kube.ShopNamespace, "cart", kube.CartRelease)
		},
		[]string{"deploy/cart", "[service-without-endpoints]", "service shop/stock", "selector"},
		func(ctx context.Context, c *kube.Client) error {
			return c.RolledOut(ctx, kube.ShopNamespace, "cart")
		},
	},
}

// patience is how long a roll-out, or a fault, may take to show.
const patience = 3 * time.Minute

func demo(ctx context.Context) (err error) {
	parts := flag.String("parts", "", "the directory that script/kube.sh prints")
	slowray := flag.String("slowray", "bin/slowray", "the program to show")
	hold := flag.Bool("hold", false, "only bring up the node with shop and slowray, and hold them until Ctrl-C")
	flag.Parse()
	began := time.Now()
	say := func(text string) { fmt.Printf("%4d s  %s\n", int(time.Since(began).Seconds()), text) }
	say("making images of the shop and of slowray")
	tools, err := kube.BuildSlowray(ctx, *slowray)
	if err != nil {
		return err
	}
	defer tools.Close()
	say("a Kubernetes node on this machine")
	n, err := kube.StartShop(ctx, kube.Options{Parts: *parts, Images: []kube.Image{tools.Image}, Say: func(text string) { say("  " + text) }})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, n.Close())
		say("all is ended and removed")
	}()
	c, err := n.Client()
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	say("the shop: client asks cart, cart asks stock")
	if err := c.Deploy(soon); err != nil {
		return err
	}
	say("helm install slowray packaging/helm/slowray")
	installing := time.Now()
	if err := n.InstallSlowray(soon, tools); err != nil {
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
	if err := firstVerdict(soon, say, n, tools, installing); err != nil {
		return err
	}
	for _, f := range faults {
		if err := show(ctx, say, n, c, tools, f); err != nil {
			return err
		}
	}
	return nil
}

// firstLimit is how long it may take from helm install to the first verdict on a shop that
// is well, by the clock of whoever waits: with the start of the pod, and a window of 10 s.
const firstLimit = time.Minute

// firstVerdict asks for the first time, and says how long that took from the installation on.
func firstVerdict(ctx context.Context, say func(string), n *kube.Node, tools *kube.Tools, installing time.Time) error {
	answer, err := n.Why(ctx, tools, "-n", kube.ShopNamespace, "deploy/cart")
	if err != nil {
		return err
	}
	took := time.Since(installing)
	verdict, _, _ := strings.Cut(strings.TrimSpace(answer), "\n")
	say(fmt.Sprintf("the first verdict, %.1f s after helm install: %s", took.Seconds(), verdict))
	if took > firstLimit {
		return fmt.Errorf("the first verdict came %.1f s after helm install, more than %s", took.Seconds(), firstLimit)
	}
	return nil
}

// show injects a fault into a shop that is well, and asks why it is slow.
func show(ctx context.Context, say func(string), n *kube.Node, c *kube.Client, tools *kube.Tools, f fault) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.Deploy(ctx); err != nil {
		return err
	}
	say(f.text)
	if err := f.inject(ctx, c); err != nil {
		return err
	}
	if err := f.shown(ctx, c); err != nil {
		return err
	}
	say("kubectl slowray why -n shop deploy/cart")
	fmt.Println()
	answer, err := n.Why(ctx, tools, "-n", kube.ShopNamespace, "deploy/cart")
	if err != nil {
		return err
	}
	fmt.Println(answer)
	for _, want := range f.want {
		if !strings.Contains(answer, want) {
			return fmt.Errorf("the answer does not name %s", want)
		}
	}
	return nil
}
