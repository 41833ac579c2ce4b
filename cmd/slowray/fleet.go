package main

// fleetCmd has what concerns many hosts: each command of it is in a file of its own.
type fleetCmd struct {
	Init     fleetInitCmd     `cmd:"" help:"Make or fix the tables of a fleet in ClickHouse."`
	Why      fleetWhyCmd      `cmd:"" help:"Name the causes of what is slow or fails on many hosts."`
	Top      fleetTopCmd      `cmd:"" help:"Show live what the services of all hosts do, and what is abnormal."`
	Requests fleetRequestsCmd `cmd:"" help:"Show the requests of a trace on all hosts, as a waterfall."`
	Watch    fleetWatchCmd    `cmd:"" help:"Say when something abnormal begins on any host, and when it is over."`
	Page     fleetPageCmd     `cmd:"" help:"Serve the page of all hosts: what is abnormal, who calls whom, services, hosts."`
	Gateway  fleetGatewayCmd  `cmd:"" help:"Put the batches of many hosts together on their way to ClickHouse."`
}
