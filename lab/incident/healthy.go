package incident

import (
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// HealthyPrefix begins the names of [Healthy].
const HealthyPrefix = "healthy:"

// Healthy is machines on which nothing is wrong, and something is always going
// on. They are no part of [All]: a scoreboard goes through them as often as it is
// asked to, and each finding in one is false.
func Healthy() []Incident {
	light := load.Load{Conns: 20, Rate: 200}
	short := load.Load{Conns: 50, Close: true, Rate: 500}
	list := []Incident{
		{Name: "idle", Summary: "no load at all", Setup: nginxFPM(query)},
		{Name: "light", Summary: "200 requests a second", Setup: nginxFPM(query), Load: light},
		{Name: "busy", Summary: "all of the CPU is used", Setup: nginxFPM(query), Load: load.Load{Conns: 1000}},
		{Name: "short-connections", Summary: "500 connections a second, one for each request", Setup: nginxFPM(query), Load: short},
		{Name: "busy-short-connections", Summary: "as many connections as the CPU can do, one for each request", Setup: nginxFPM(query), Load: load.Load{Conns: 100, Close: true}},
		{Name: "reloads", Summary: "nginx reads its configuration again every other second", Setup: chores(nginxFPM(query), server.Chores{Reloads: true}), Load: light},
		{Name: "restarts", Summary: "another server is stopped and started", Setup: chores(nginxFPM(query), server.Chores{Restarts: true}), Load: light},
		{Name: "cron", Summary: "small programs start and end next to the service", Setup: chores(nginxFPM(query), server.Chores{Cron: true}), Load: light},
		{Name: "packages", Summary: "dpkg installs packages", Setup: chores(nginxFPM(query), server.Chores{Packages: true}), Load: light},
		{Name: "packages-short-connections", Summary: "dpkg installs packages, while 500 connections a second come in", Setup: chores(nginxFPM(query), server.Chores{Packages: true}), Load: short},
		{Name: "cron-busy", Summary: "small programs start and end while the service uses all of the CPU", Setup: chores(nginxFPM(query), server.Chores{Cron: true}), Load: load.Load{Conns: 200}},
		{Name: "calls", Summary: "a web server that calls a backend over short connections", Setup: func() server.Setup {
			s := webAndBackend(server.WebBackend, near)()
			s.Web.CallClose, s.Backend.Work = true, 2*time.Millisecond
			return s
		}, Load: load.Load{Conns: 20, Rate: 500}},
		{Name: "all-chores", Summary: "reloads, restarts, cron jobs and packages at once", Setup: chores(nginxFPM(query), server.Chores{Reloads: true, Restarts: true, Cron: true, Packages: true}), Load: light},
	}
	for n := range list {
		list[n].Name = HealthyPrefix + list[n].Name
		list[n].Control, list[n].Quick = true, true
	}
	return list
}

// chores is a setup with something going on next to it.
func chores(setup func() server.Setup, are server.Chores) func() server.Setup {
	return func() server.Setup {
		s := setup()
		s.Chores = are
		return s
	}
}
