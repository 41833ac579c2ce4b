package main

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"

	"github.com/alecthomas/kong"

	"github.com/slowray/slowray/internal/catalogue"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/manual"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Help is printed by --help, above the flags.
func (*completionCmd) Help() string {
	return `For this session: source <(slowray completion bash). For good, as root:
  slowray completion bash > /usr/share/bash-completion/completions/slowray
  slowray completion zsh > /usr/share/zsh/vendor-completions/_slowray
  slowray completion fish > /usr/share/fish/vendor_completions.d/slowray.fish`
}

// Run prints the script.
func (c *completionCmd) Run(s *streams) error {
	text, err := manual.Script(c.Shell)
	if err != nil {
		return fmt.Errorf("completion: %w", err)
	}
	_, err = io.WriteString(s.out, text)
	return err
}

// completeCmd is what the scripts ask.
type completeCmd struct {
	Words []string `arg:"" optional:"" help:"Words of the command line, the last one unfinished."`
}

// Run prints what may come next.
func (c *completeCmd) Run(k *kong.Context, s *streams) error {
	_, err := io.WriteString(s.out, manual.Complete(k.Model, c.Words, completionValues).Lines())
	return err
}

// completionValues are the words of the kinds that tags "complete" name.
func completionValues(kind string) []manual.Candidate {
	var list []manual.Candidate
	switch kind {
	case "causes":
		for _, c := range cause.Catalogue() {
			list = append(list, manual.Candidate{Word: string(c.ID), Help: c.Title})
		}
	case "incidents":
		for _, i := range catalogue.Incidents() {
			if !i.Machine {
				list = append(list, manual.Candidate{Word: i.Name, Help: i.Summary})
			}
		}
	case "formats":
		list = []manual.Candidate{{Word: "text", Help: "a line for each request"}, {Word: "json", Help: "an object on each line, slowray.request/1"}, {Word: "tcprt", Help: "TCPRT's log, version 6"}}
	case "sides":
		list = []manual.Candidate{{Word: "served", Help: "answered on this host"}, {Word: "called", Help: "sent from this host"}}
	}
	return list
}

type manCmd struct{}

// Run shows the manual page on a terminal, and prints its source elsewhere.
func (*manCmd) Run(k *kong.Context, s *streams) error {
	if _, terminal := commandline.TerminalColumns(s.out); !terminal {
		return writeManual(k, s.out)
	}
	var page bytes.Buffer
	if err := writeManual(k, &page); err != nil {
		return err
	}
	source := page.String()
	man := exec.Command("man", "-l", "-")
	man.Stdin, man.Stdout, man.Stderr = &page, s.out, s.err
	if err := man.Run(); err == nil {
		return nil
	}
	_, err := io.WriteString(s.out, manual.Plain(source, textColumns(s.out)))
	return err
}

func writeManual(k *kong.Context, w io.Writer) error {
	return manual.Page(w, k.Model, version(), []manual.Section{
		{Title: "Exit status", Paragraphs: []string{
			"0: nothing found. 1: something found. 2: could not run. Commands that find nothing by their nature end with 0 or 2.",
		}},
		{Title: "Files", Paragraphs: []string{
			noticeDir + ": changes that slowray has made to this host and may have to put back, see slowray undo.",
			historyDir + ": what slowray record keeps.",
		}},
		{Title: "Environment", Paragraphs: []string{
			"NO_COLOR, TERM=dumb: no colors (no-color.org).",
			"COLUMNS: how wide text is where the output is no terminal.",
			"OTEL_EXPORTER_OTLP_HEADERS: sent along with slowray record --otlp, as key=value,key=value.",
		}},
		{Title: "See also", Paragraphs: []string{"ss(8), nstat(8), perf(1), bpftool(8), tcpdump(8). slowray causes lists all causes it knows, slowray causes ID tells all about one."}},
	})
}
