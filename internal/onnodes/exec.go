package onnodes

import (
	"context"
	"errors"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

// program is slowray in its image.
const program = "/usr/bin/slowray"

// Terminal is who looks at a command that draws.
type Terminal struct {
	In    io.Reader
	Sizes remotecommand.TerminalSizeQueue
}

// exec runs a command line of slowray in a pod and gives its exit status. Its terminal
// may be nil.
func (c *Cluster) exec(ctx context.Context, pod *corev1.Pod, args []string, terminal *Terminal, stdout, stderr io.Writer) (int, error) {
	request := c.core.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: append([]string{program}, args...),
			Stdin: terminal != nil, TTY: terminal != nil, Stdout: true, Stderr: terminal == nil,
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
	streams := remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr}
	if terminal != nil {
		streams = remotecommand.StreamOptions{Stdin: terminal.In, Stdout: stdout, Tty: true, TerminalSizeQueue: terminal.Sizes}
	}
	err = either.StreamWithContext(ctx, streams)
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
