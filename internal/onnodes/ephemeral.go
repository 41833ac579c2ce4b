package onnodes

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/packaging/kubernetes"
)

const (
	// startLimit is how long a pod may take to start, with the image to pull.
	startLimit = 2 * time.Minute
	// runLimit is when the kubelet ends it, should nobody delete it.
	runLimit = time.Hour
	// deleteLimit is for deleting it, after all else has ended.
	deleteLimit = 10 * time.Second
)

// Ephemeral runs slowray in a pod that it makes on the node, and deletes again, with the rights
// of a service account at the API server; empty: none. What it prints to standard error comes with what it prints.
func (c *Cluster) Ephemeral(image, account string) (Runner, error) {
	spec, err := agentSpec(image, account)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, s Spot, args []string, stdout, stderr io.Writer) (status int, err error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		pods := c.core.Pods(c.ephemeral)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "slowray-ephemeral-", Labels: map[string]string{"app.kubernetes.io/name": "slowray-ephemeral"}}, Spec: *spec.DeepCopy()}
		pod.Spec.NodeName, pod.Spec.Containers[0].Args = s.Node, args
		// Not with ctx: whoever ends this must not leave a pod that nobody knows the name of.
		making, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteLimit)
		pod, err = pods.Create(making, pod, metav1.CreateOptions{})
		cancel()
		if err != nil {
			return 0, explain(err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteLimit)
			defer cancel()
			now := int64(0)
			if gone := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); gone != nil {
				err = errors.Join(err, fmt.Errorf("pod %s/%s is left: %w", pod.Namespace, pod.Name, explain(gone)))
			}
		}()
		return c.follow(ctx, pod.Name, stdout, stderr)
	}, nil
}

// agentSpec is the pod of the DaemonSet, changed to run a command once: without a history
// on the node, and at the API server with the rights of a service account, or none.
func agentSpec(image, account string) (*corev1.PodSpec, error) {
	for _, part := range bytes.Split(kubernetes.Manifests, []byte("\n---\n")) {
		var d appsv1.DaemonSet
		if err := yaml.Unmarshal(part, &d); err != nil || d.Kind != "DaemonSet" {
			continue
		}
		spec := &d.Spec.Template.Spec
		spec.ServiceAccountName, spec.NodeSelector = account, nil
		token, limit := account != "", int64(runLimit/time.Second)
		spec.AutomountServiceAccountToken, spec.ActiveDeadlineSeconds, spec.RestartPolicy = &token, &limit, corev1.RestartPolicyNever
		for i := range spec.Volumes {
			if spec.Volumes[i].Name == "history" {
				spec.Volumes[i].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
			}
		}
		spec.Containers[0].Image = image
		return spec, nil
	}
	return nil, errors.New("no DaemonSet in the manifests")
}

// follow passes on what a pod prints, and gives the exit status of its container.
func (c *Cluster) follow(ctx context.Context, name string, stdout, stderr io.Writer) (int, error) {
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if _, err := c.await(starting, name, func(s *corev1.ContainerStatus) bool { return s.State.Running != nil || s.State.Terminated != nil }); err != nil {
		return 0, err
	}
	logs, err := c.core.Pods(c.ephemeral).GetLogs(name, &corev1.PodLogOptions{Container: container, Follow: true}).Stream(ctx)
	if err != nil {
		return 0, explain(err)
	}
	defer logs.Close()
	if err := split(logs, stdout, stderr); err != nil && ctx.Err() == nil {
		return 0, err
	}
	s, err := c.await(ctx, name, func(s *corev1.ContainerStatus) bool { return s.State.Terminated != nil })
	if err != nil {
		return 0, err
	}
	return int(s.State.Terminated.ExitCode), nil
}

// await asks for a container of a pod until it is as wanted, or cannot become it.
func (c *Cluster) await(ctx context.Context, name string, wanted func(*corev1.ContainerStatus) bool) (*corev1.ContainerStatus, error) {
	last := "it was not started"
	for {
		pod, err := c.core.Pods(c.ephemeral).Get(ctx, name, metav1.GetOptions{})
		if err != nil && ctx.Err() == nil {
			return nil, explain(err)
		}
		if err == nil {
			if pod.Status.Phase == corev1.PodFailed && len(pod.Status.ContainerStatuses) == 0 {
				return nil, fmt.Errorf("pod %s: %s", name, printable.Text(pod.Status.Reason+": "+pod.Status.Message))
			}
			for i := range pod.Status.ContainerStatuses {
				s := &pod.Status.ContainerStatuses[i]
				if wanted(s) {
					return s, nil
				}
				if w := s.State.Waiting; w != nil {
					last = printable.Text(w.Reason + ": " + w.Message)
					if w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff" || w.Reason == "ErrImageNeverPull" || w.Reason == "InvalidImageName" || w.Reason == "CreateContainerError" {
						return nil, fmt.Errorf("%s (name an image that the node can pull with --image)", last)
					}
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("pod %s: %s: %w", name, last, ctx.Err())
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// split takes apart what slowray prints for people (its name stands before it) and its
// answer, which come together in the log of a container.
func split(logs io.Reader, stdout, stderr io.Writer) error {
	r := bufio.NewReaderSize(logs, 64<<10)
	to := stdout
	for began := true; ; {
		part, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && len(part) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if began {
			to = stdout
			if bytes.HasPrefix(part, []byte("slowray: ")) {
				to = stderr
			}
		}
		if _, err := to.Write(part); err != nil {
			return err
		}
		began = err == nil
	}
}

// ImageOf is what the image of a version is called where it was imported.
func ImageOf(version string) string {
	return "localhost/slowray:" + strings.NewReplacer("+", "-", "~", "-").Replace(version)
}
