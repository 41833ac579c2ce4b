// Command fleetdemo shows slowray on many hosts, on one machine (make fleet-demo):
// two shards of ClickHouse, 50 simulated hosts, and two real ones, an application
// and its database, each in a network namespace of its own with a slowray record
// that sends to the shards. After a while somebody locks the database's rows, and
// slowray fleet why is asked.
//
// It needs root, and what script/setup.sh test lab installs. Everything that it
// starts and makes is ended and removed when it ends, also by Ctrl-C.
package main
