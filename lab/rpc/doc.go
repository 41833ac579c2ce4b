// Package rpc is a service of gRPC as people write them, in the clear or under TLS, and its
// client: what lab/server runs, lab/load calls.
package rpc
