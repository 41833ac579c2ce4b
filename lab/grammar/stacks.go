package grammar

import (
	"fmt"
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

func readSlowly(pause time.Duration, size int) func(*load.Load) {
	return func(l *load.Load) { l.ReadPause, l.ReadBytes, l.ReadBuf = pause, size, 16<<10 }
}

// fewerThanWorkers is as many connections as the workers of the healthy servers are enough
// for (server.Healthy has 40).
const fewerThanWorkers = 36

// pool is a server with too few workers for what its clients ask: more of them at a
// time than it has workers, and pages that wait.
func (d *drawing) pool(incident string, comms ...string) (workers int, work time.Duration) {
	d.take(incident)
	workers, work = d.count(2, 5), d.ms(30, 90) // what always takes a tenth of a second is slow by itself
	n := min(workers*d.count(5, 9)+d.count(0, 5), fewerThanWorkers)
	switch shape := pick(d, "closed", "short", "bursts", "open"); shape {
	case "bursts":
		d.load = load.Load{Conns: n, Burst: d.ms(400, 1000)}
		d.shape.Load = shape
	case "open":
		d.load = load.Load{Conns: min(2*n, fewerThanWorkers), Rate: 1.4 * float64(workers) / work.Seconds()}
		d.shape.Load = shape
	case "short":
		d.load = load.Load{Conns: n, Close: true, Think: d.ms(5, 30)}
		d.shape.Load = shape
	default:
		d.load = load.Load{Conns: n, Think: d.ms(5, 30)}
		d.shape.Load = shape
	}
	d.load.Own = true
	d.setup.Workers.Work = work
	d.where.Comms = comms
	d.inject(fmt.Sprintf("%d workers for pages that wait %v", workers, work), func(s *server.Setup) { s.Workers.Max = workers })
	return workers, work
}

// hops before servers whose clients may be any.
func (d *drawing) behind() { d.before(2) }

// stacks are faults of servers as people have them.
func stacks() []kind {
	asPool := func(name, incident string, comms ...string) kind {
		return kind{name, func(d *drawing) {
			d.pool(incident, comms...)
			d.behind()
		}}
	}
	queries := func(name, incident string, vary func(*drawing), comms ...string) kind {
		return kind{name, func(d *drawing) {
			d.take(incident)
			d.where.Comms = comms
			d.shape.Layout = "own"
			if vary != nil {
				vary(d)
			}
			d.before(1)
		}}
	}
	lacking := func(name, incident string) kind {
		return kind{name, func(d *drawing) {
			d.take(incident)
			d.load = load.Load{Conns: d.count(4, 14), Think: d.ms(5, 30), Own: true}
			d.shape.Load = "closed"
			d.before(2)
		}}
	}
	return []kind{
		{"php-children", func(d *drawing) {
			workers, work := d.pool("php-fpm-children", "php-fpm8.2", "php-fpm", "nginx")
			d.setup.Sleep, d.setup.Workers.Work = work, 0
			d.inject(fmt.Sprintf("pm.max_children %d for pages that wait %v", workers, work), func(s *server.Setup) { s.Children = workers })
			d.behind()
		}},
		asPool("apache-workers", "apache-workers", "apache2"),
		asPool("uwsgi-workers", "uwsgi-queue", "uwsgi"),
		asPool("gunicorn-workers", "gunicorn-sync-workers", "gunicorn", "nginx", "python3"),
		asPool("tomcat-threads", "tomcat-threads", "java"),
		{"haproxy-maxconn", func(d *drawing) {
			most, _ := d.pool("haproxy-maxconn", "haproxy")
			d.inject(fmt.Sprintf("maxconn %d", most), func(s *server.Setup) { s.Workers.MaxConn = most })
			d.behind()
		}},
		{"haproxy-queue", func(d *drawing) {
			most, _ := d.pool("haproxy-server-queue", "haproxy")
			d.inject(fmt.Sprintf("maxconn %d of the server", most), func(s *server.Setup) { s.Workers.ServerMaxConn = most })
			d.behind()
		}},
		{"limit-req", func(d *drawing) {
			d.take("nginx-limit-req")
			rate := d.count(5, 40)
			d.load = load.Load{Conns: d.count(8, 20), Think: d.ms(10, 40), Own: true}
			d.shape.Load = "closed"
			d.where.Comms = []string{"nginx"}
			d.inject(fmt.Sprintf("%d requests a second for each address", rate), func(s *server.Setup) { s.Workers.LimitRate = rate })
			d.busy = true // whatever its rate, nginx takes no more than its burst of 5 at one moment
			d.before(1)
		}},
		queries("mariadb-connections", "mariadb-max-connections", func(d *drawing) {
			most := d.count(8, 16)
			d.inject(fmt.Sprintf("max_connections %d", most), func(s *server.Setup) { s.Query.Max = most })
		}, "mariadbd", "booking-app"),
		queries("mariadb-rows", "mariadb-lock-wait", func(d *drawing) {
			holds := d.ms(200, 700)
			d.inject(fmt.Sprintf("another program has the locks of all rows for %v, again and again", holds), func(s *server.Setup) {
				s.Report = server.Report{Every: 50 * time.Millisecond, Holds: holds}
			})
		}, "mariadbd", "night-report"),
		queries("postgres-rows", "postgres-lock-wait", func(d *drawing) {
			holds := d.ms(200, 700)
			d.inject(fmt.Sprintf("another program has the locks of all rows for %v, again and again", holds), func(s *server.Setup) {
				s.Report = server.Report{Every: 50 * time.Millisecond, Holds: holds}
			})
		}, "postgres", "night-report"),
		queries("mariadb-index", "mariadb-full-scan", nil, "mariadbd"),
		queries("postgres-index", "postgres-full-scan", nil, "postgres"),
		queries("redis-keys", "redis-keys", nil, "redis-server", "night-report"),
		queries("redis-clients", "redis-max-clients", func(d *drawing) {
			most := d.count(8, 20)
			d.inject(fmt.Sprintf("maxclients %d", most), func(s *server.Setup) { s.Redis.Max = most })
		}, "redis-server", "booking-app"),
		queries("query-pool", "database-pool", func(d *drawing) {
			pool := d.count(1, 3)
			d.setup.Query.Sleep = d.ms(8, 25)
			d.inject(fmt.Sprintf("a pool of %d connections", pool), func(s *server.Setup) { s.Query.Pool = pool })
		}, "booking-app"),
		queries("slow-backend", "slow-dependency", func(d *drawing) {
			work := d.ms(120, 500)
			d.load = load.Load{Conns: d.count(8, 24), Think: d.ms(2, 20), Own: true}
			d.inject(fmt.Sprintf("what is called takes %v", work), func(s *server.Setup) { s.Backend.Work = work })
			d.faults[0].Or = []string{"application-sleep"}
		}),
		lacking("disk-full", "disk-full"),
		lacking("inodes", "inodes-exhausted"),
		lacking("tmpfs-full", "tmpfs-full"),
		lacking("read-only", "filesystem-read-only"),
		lacking("file-denied", "file-denied"),
		lacking("file-size", "file-size-limit"),
		{"syslog", func(d *drawing) {
			d.take("syslog-blocked")
			pause := d.ms(30, 120)
			d.inject(fmt.Sprintf("the daemon of the log takes %v for a line", pause), func(s *server.Setup) { s.Desk.SyslogPause = pause })
			d.before(2)
		}},
		{"dns-dead", func(d *drawing) {
			d.take("dns-timeout")
			d.before(1)
		}},
		{"dns-slow", func(d *drawing) {
			d.take("dns-slow")
			d.before(1)
		}},
		{"deadlock", func(d *drawing) {
			d.take(pick(d, "deadlock", "deadlock-go", "deadlock-java", "deadlock-python"))
			d.before(2)
		}},
		{"conntrack", func(d *drawing) {
			most := d.count(60, 200)
			d.take("conntrack-full")
			d.load.Conns, d.whole = d.count(3, 6)*most, true
			d.inject(fmt.Sprintf("nf_conntrack_max %d", most), func(s *server.Setup) { s.Track, s.ConntrackMax = true, most })
		}},
		{"ports", func(d *drawing) {
			n := d.count(20, 90)
			d.take("ephemeral-ports")
			d.whole = true
			d.inject(fmt.Sprintf("ip_local_port_range of %d ports", n), func(s *server.Setup) { s.PortRange = n })
		}},
	}
}
