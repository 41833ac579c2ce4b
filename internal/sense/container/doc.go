// Package container asks the container engines of this host what their
// containers are called, which image they run, and how they ended.
//
// In: the processes of engines, and the ids of containers that matter. Out:
// observe.Container. Docker and Podman are asked over their API sockets, with
// short timeouts and bounded answers, and only where the engine runs already:
// connecting to a socket of systemd's would start it. Of Podman and CRI-O the
// store of containers is read, of containerd the bundles, where they lie. It
// never asks an engine to do anything.
package container
