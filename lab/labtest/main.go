//go:build labtest

// Command labtest drives package lab on its own:
//
//	go run -tags labtest ./lab/labtest [flags] list | run NAME… | shell NAME | clean
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/slowray/slowray/lab"
)

func main() {
	lab.InitMain()
	var opt lab.Options
	slowray := flag.String("slowray", "", "slowray `command`, split at blanks")
	flag.BoolVar(&opt.TruthOnly, "truth-only", false, "measure, do not run slowray")
	flag.BoolVar(&opt.Verbose, "v", false, "say what is going on")
	flag.BoolVar(&opt.JSON, "json", false, "print the result as JSON")
	flag.BoolVar(&opt.WholeHost, "whole-host", false, "do not tell slowray the port")
	flag.Int64Var(&opt.Seed, "seed", 0, "of addresses and ports")
	flag.DurationVar(&opt.Window, "window", 0, "that slowray looks")
	flag.DurationVar(&opt.Keep, "keep", 0, "how long the load of shell lasts")
	flag.Parse()
	opt.Slowray = strings.Fields(*slowray)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ok, err := drive(ctx, opt, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func drive(ctx context.Context, opt lab.Options, args []string) (bool, error) {
	if len(args) == 0 {
		args = []string{"list"}
	}
	ok := true
	switch args[0] {
	case "run":
		for _, name := range args[1:] {
			result, err := lab.Run(ctx, name, opt)
			if err != nil {
				return false, err
			}
			ok = ok && result.OK
		}
	case "shell":
		return true, lab.Shell(ctx, args[1], opt)
	case "clean":
		return true, lab.Clean()
	default:
		for _, i := range lab.List() {
			fmt.Printf("%-26s %s %v\n", i.Name, i.Summary, i.Causes)
		}
	}
	return ok, nil
}
