// Command fleetdemo shows slowray on many hosts, on one machine (make fleet-demo):
// two shards of ClickHouse, 50 simulated hosts, and two real ones, an application
// and its database, each in a network namespace of its own with a slowray record
// that sends to the shards. When enough is known of them somebody locks the database's
// rows, and when that is found slowray fleet why is asked, which must name host and
// process.
//
// It needs root, and what script/setup.sh test lab installs. Everything that it
// starts and makes is ended and removed within seconds when it ends, also by Ctrl-C; when
// it is killed its directory is left, which the next one removes.
package main
