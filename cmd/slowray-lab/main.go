// Command slowray-lab is slowray lab: incidents to try slowray on, in private network
// namespaces, and simulated fleets. slowray runs it from its own directory.
package main

import "github.com/slowray/slowray/lab/cli"

func main() { cli.Main() }
