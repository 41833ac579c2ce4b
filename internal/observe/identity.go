package observe

// Identity is what a process is known by beyond its number: what it is called and
// where it runs. It can be compared, so it may be the key of a map.
type Identity struct {
	Comm          string
	Cgroup        string   // path of its control group, the most telling one
	Container     string   // id, empty when it runs in none
	ContainerName string   // as its engine calls it, empty when none does
	Unit          string   // systemd unit, empty when it belongs to none
	Workload      Workload // of its container in Kubernetes
}

// IdentityOf gives the process that had this pid at a time (wall clock, ns since
// 1970); false when it is not known. It must be cheap: it is called once for each
// request.
type IdentityOf func(pid int, at int64) (Identity, bool)
