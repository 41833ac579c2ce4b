// Package servicemap tells who calls whom, and joins the two ends of a request.
//
// In: hosts, what their endpoints did (fleet.Point), stored requests of both sides.
// Out: a Map: calls from service to service with both ends' figures; requests seen at
// both ends, and how much of their time each host and the wire between them had; by
// how much the hosts' clocks differ. It is pure: the same input, in whatever order,
// gives the same map. What cannot be known, as behind an address that no host has, is
// said to be unknown, with the reason.
package servicemap
