package onnodes

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

const (
	// program is slowray in its image.
	program = "/usr/bin/slowray"
	// lastWord is how long slowray may take to report once it was asked to end.
	lastWord = 10 * time.Second
)

// Terminal is who looks at a command that draws.
type Terminal struct {
	In    io.Reader
	Sizes remotecommand.TerminalSizeQueue
}

// exec runs a command line of slowray in a pod and gives its exit status. When ctx ends
// slowray still reports, as after Ctrl-C. Its terminal may be nil.
func (c *Cluster) exec(ctx context.Context, pod *corev1.Pod, args []string, terminal *Terminal, stdout, stderr io.Writer) (int, error) {
	streams := remotecommand.StreamOptions{Stdout: stdout}
	if terminal != nil {
		streams.Stdin, streams.Tty, streams.TerminalSizeQueue = terminal.In, true, terminal.Sizes
	} else {
		// No signal reaches a process in a container, but the end of its input does.
		input, end := io.Pipe()
		defer end.Close()
		defer context.AfterFunc(ctx, func() { _ = end.Close() })()
		streams.Stdin, streams.Stderr = input, stderr
		args = append(slices.Clone(args), "--end-with-input")
	}
	streaming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWord, cancel) })()
	request := c.core.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: append([]string{program}, args...),
			Stdin: true, TTY: streams.Tty, Stdout: true, Stderr: !streams.Tty,
		}, scheme.ParameterCodec)
	spdy, err := remotecommand.NewSPDYExecutor(c.config, "POST", request.URL())
	if err != nil {
		return 0, err
	}
	socket, err := remotecommand.NewWebSocketExecutor(c.config, "GET", request.URL().String())
	if err != nil {
		return 0, err
	}
	either, err := remotecommand.NewFallbackExecutor(socket, spdy, fallsBack)
	if err != nil {
		return 0, err
	}
	err = either.StreamWithContext(streaming, streams)
	var ended exec.CodeExitError
	if errors.As(err, &ended) {
		return ended.Code, nil
	}
	return 0, explain(err)
}

// fallsBack says that a server, or a proxy before it, cannot speak WebSocket
// (before Kubernetes 1.30).
func fallsBack(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}
