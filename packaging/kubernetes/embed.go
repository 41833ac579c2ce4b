// Package kubernetes has the manifests for those without Helm, which the chart renders.
package kubernetes

import _ "embed"

// Manifests are what kubectl apply -f slowray.yaml installs.
//
//go:embed slowray.yaml
var Manifests []byte
