// Command kubectl-slowray is kubectl slowray: it runs slowray on the nodes where the pods
// of a workload are. It needs no Linux, and no rights but those at the API server.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"time"

	"github.com/alecthomas/kong"
	"k8s.io/klog/v2"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/onnodes"
	"github.com/slowray/slowray/internal/printable"
)

// built is the version that the linker was given: packaging/package sets it.
var built = "devel"

type cli struct {
	Why      whyCmd      `cmd:"" help:"Say why a workload is slow: slowray why for each of its pods, and one report."`
	Requests requestsCmd `cmd:"" help:"One line for each request on the nodes of a workload."`
	Top      topCmd      `cmd:"" help:"Show live where the requests on a node spend their time."`
	Wait     waitCmd     `cmd:"" help:"Show what a process on a node waits for."`
	Page     pageCmd     `cmd:"" help:"Open the page of a node on this machine."`

	Version bool `help:"Print the version and exit."`
}

// access are the flags of kubectl, and where slowray is.
type access struct {
	Namespace        string `short:"n" placeholder:"NS" help:"Namespace of the workload, as for kubectl."`
	Context          string `placeholder:"C" help:"Context of the kubeconfig, as for kubectl."`
	Kubeconfig       string `placeholder:"FILE" help:"As for kubectl."`
	SlowrayNamespace string `placeholder:"NS" help:"Namespace of slowray's pods (slowray; with --ephemeral that of the workload)."`
}

// spots connects, and finds the nodes of a target.
func (a *access) spots(ctx context.Context, target string) (*onnodes.Cluster, []onnodes.Spot, error) {
	c, err := onnodes.Connect(onnodes.Access{Kubeconfig: a.Kubeconfig, Context: a.Context, Namespace: a.Namespace, Home: a.SlowrayNamespace})
	if err != nil {
		return nil, nil, err
	}
	spots, err := c.Spots(ctx, target)
	return c, spots, err
}

// ephemeral are the flags for nodes without the DaemonSet.
type ephemeral struct {
	Ephemeral      bool   `help:"Run slowray in pods that are made on the nodes and deleted again, in place of the DaemonSet's."`
	Image          string `placeholder:"I" help:"With --ephemeral: the image (localhost/slowray of this version)."`
	ServiceAccount string `placeholder:"NAME" help:"With --ephemeral: the service account of the pods' namespace whose rights they have at the API server (none)."`
}

func (e *ephemeral) Validate() error {
	switch {
	case e.Image != "" && !e.Ephemeral:
		return fmt.Errorf("--image goes with --ephemeral")
	case e.ServiceAccount != "" && !e.Ephemeral:
		return fmt.Errorf("--service-account goes with --ephemeral")
	}
	return nil
}

func (e *ephemeral) runner(ctx context.Context, c *onnodes.Cluster, spots []onnodes.Spot) (onnodes.Runner, error) {
	if !e.Ephemeral {
		return c.OnAgents(ctx, spots)
	}
	image := e.Image
	if image == "" {
		image = onnodes.ImageOf(built)
	}
	return c.Ephemeral(image, e.ServiceAccount)
}

func main() {
	// What client-go has to say comes as an error, too.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// streams is where a command writes: results and messages.
type streams struct{ out, err io.Writer }

func run(args []string, stdout, stderr io.Writer) int {
	c := new(cli)
	parser, err := kong.New(c,
		kong.Name("kubectl slowray"),
		kong.Description("Runs slowray on the nodes where the pods of a workload are.\n\nA workload is deploy/NAME, sts/NAME, ds/NAME, rs/NAME, job/NAME, svc/NAME, pod/NAME or node/NAME; what follows -- are flags of slowray itself.\n\nExit status: 0 nothing found, 1 something found, 2 could not run; of several nodes the highest."),
		kong.Writers(stdout, stderr),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), commandline.Durations{}),
		kong.KindMapper(reflect.Int, commandline.Numbers{}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic(err) // the structure above is wrong: a bug, not an input
	}
	parsed, status := commandline.Parse(parser, args, "kubectl slowray "+built)
	if parsed == nil {
		return status
	}
	command := parsed.Selected().Target.Addr().Interface().(interface {
		Run(context.Context, *streams) (int, error)
	})
	status, err = command.Run(commandline.UntilSignal(time.Second), &streams{stdout, stderr})
	if err != nil {
		fmt.Fprintf(stderr, "slowray: %s\n", printable.Text(err.Error()))
		return commandline.ExitFailed
	}
	return status
}
