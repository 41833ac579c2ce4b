// Command kubedemo shows slowray on Kubernetes, on one machine (make k8s-demo): a node with
// all its real parts, a shop of three Deployments on it, and slowray, installed by its
// chart. Then somebody changes a manifest, and kubectl slowray why, asked about the
// Deployment, must name it, the cause and the field; twice, with different fields.
//
// It needs root, what script/setup.sh k8s installs and what script/kube.sh builds. All is
// ended and removed when it ends, also by Ctrl-C or SIGKILL.
package main
