package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

const (
	RedisForkStall              ID = "redis-fork-stall"
	RedisAOFFsync               ID = "redis-aof-fsync"
	PostgresCheckpointsFrequent ID = "postgres-checkpoints-frequent"
)

// What makes a database stand still for moments: a fork that copies page
// tables, a disk that an append-only file waits for, checkpoints. None of them
// is injected in the lab: a fork that takes long needs gigabytes of memory, the
// others a disk slower than the one there is.
var (
	redisForkStall = Cause{
		ID:            RedisForkStall,
		Title:         "Redis stalls in fork() to save its data",
		Layer:         LayerApplication,
		Class:         ClassDatabase,
		Needs:         []observe.Kind{observe.KindDatabases, observe.KindRequests},
		ConsequenceOf: []Parent{MemoryPressure, CPUSaturated},
		Folds:         true,
		Check:         checkRedisFork,
	}
	redisAOFFsync = Cause{
		ID:            RedisAOFFsync,
		Title:         "Redis waits for the fsync of its AOF",
		Layer:         LayerApplication,
		Class:         ClassDatabase,
		Needs:         []observe.Kind{observe.KindDatabases, observe.KindRequests},
		ConsequenceOf: []Parent{FsyncBound, BlockedOnDisk, DiskSaturated},
		Folds:         true,
		Check:         checkRedisAOF,
		Try: func(v *View, t Target) []Change {
			return setRedis(v.databaseFor(t), "no-appendfsync-on-rewrite", "", "yes")
		},
	}
	postgresCheckpoints = Cause{
		ID:            PostgresCheckpointsFrequent,
		Title:         "PostgreSQL checkpoints too often (max_wal_size)",
		Layer:         LayerApplication,
		Class:         ClassDatabase,
		Needs:         []observe.Kind{observe.KindDatabases, observe.KindRequests},
		ConsequenceOf: []Parent{DiskSaturated},
		Folds:         true,
		Check:         checkPostgresCheckpoints,
	}
)

// judgeStalls runs a check on each database of these kinds: what a sign says,
// with its evidence, counts where requests are slow.
func (v *View) judgeStalls(none string, kinds []string, sign func(*databaseUse) (yes bool, text string, evidence []Evidence, fix Fix)) Result {
	r := ruledOut(none)
	for _, u := range v.databaseUses(kinds...) {
		yes, text, evidence, fix := sign(&u)
		k, slow, how := v.slowness(&u)
		r.RuledOut = text
		if !yes {
			continue
		}
		if !slow {
			r.RuledOut += ", but " + how
			continue
		}
		f := v.databaseFinding(&u, k, "for the database")
		f.Evidence = append(f.Evidence, evidence...)
		f.Fix = fix
		r.Findings = append(r.Findings, f)
	}
	return r
}

func checkRedisFork(v *View) Result {
	return v.judgeStalls("no Redis has requests", []string{"redis", "valkey"}, func(u *databaseUse) (bool, string, []Evidence, Fix) {
		forks, known := u.d.Status.Increase("total_forks")
		if !known {
			return false, databaseText(u.d) + " did not tell about its forks", nil, Fix{}
		}
		took := u.d.Status.End["latest_fork_usec"]
		text := fmt.Sprintf("%s forked %.0f times in the window, the last time in %s", databaseText(u.d), forks, seconds(took/1e6))
		if forks == 0 {
			text = databaseText(u.d) + " did not fork in the window"
		}
		return forks >= 1 && took >= forkStall && u.served.SlowTotalNS() >= took*1e3/slowerThan, text, []Evidence{
				{Fact: "forks in the window", Value: int64(forks), Unit: "forks", Source: "INFO, total_forks"},
				{Fact: "the latest took", Value: round(took / 1e3), Unit: "ms", Source: "INFO, latest_fork_usec"},
				{Fact: "memory of Redis", Value: uint64(u.d.Status.End["used_memory_rss"]), Unit: "bytes", Source: "INFO, used_memory_rss"},
			}, Fix{
				Text: "Have it save less often, or on a replica; or divide the data among smaller instances.",
				Commands: []shell.Command{v.redisCLI(u.d, shell.Line("CONFIG GET save")),
					shell.Line("cat /sys/kernel/mm/transparent_hugepage/enabled   # never or madvise: huge pages make a fork, and writes after it, slow")},
			}
	})
}

func checkRedisAOF(v *View) Result {
	return v.judgeStalls("no Redis has requests", []string{"redis", "valkey"}, func(u *databaseUse) (bool, string, []Evidence, Fix) {
		delayed, known := u.d.Status.Increase("aof_delayed_fsync")
		if !known {
			return false, databaseText(u.d) + " keeps no append-only file, or does not tell", nil, Fix{}
		}
		text := fmt.Sprintf("%s waited %.0f times for its append-only file", databaseText(u.d), delayed)
		return delayed >= 1, text, []Evidence{
				{Fact: "writes of the append-only file that waited for the disk", Value: int64(delayed), Unit: "times", Source: "INFO, aof_delayed_fsync"},
			}, Fix{
				Text:     "Give the append-only file a faster disk, or one that nobody else uses.",
				Commands: []shell.Command{v.redisCLI(u.d, shell.Line("CONFIG SET no-appendfsync-on-rewrite yes"))},
			}
	})
}

func checkPostgresCheckpoints(v *View) Result {
	return v.judgeStalls("no PostgreSQL has requests", []string{"postgresql"}, func(u *databaseUse) (bool, string, []Evidence, Fix) {
		n, example := logCount(u.d.Log, "checkpoints-frequent")
		disk := 0.0
		if s := u.served.Split; s != nil && s.Requests >= fewRequests {
			disk = ratio(s.ShareNS(observe.ServerDisk, 1), 1.0)
		}
		text := fmt.Sprintf("%s complained %s times of frequent checkpoints; its requests waited for disks %s of their time", databaseText(u.d), count(n), percent(disk))
		setting := fromHost(u.d.Root, u.d.Settings["max_wal_size"])
		return n >= 1 && disk >= wasteShare, text, []Evidence{
				{Fact: "log: checkpoints are occurring too frequently", Value: n, Unit: "lines", Source: "log of PostgreSQL"},
				firstLine(example),
				{Fact: "of the server time, waiting for disks", Value: round(disk), Unit: "share", Source: recorded},
				{Fact: "max_wal_size", Value: setting.Value, Source: settingSource(setting)},
			}, Fix{
				Text: "Raise max_wal_size: checkpoints then come by time, and write less.",
				Commands: []shell.Command{v.psql(u.d, shell.Line(`-c "ALTER SYSTEM SET max_wal_size = '8GB'"`)),
					v.psql(u.d, shell.Line(`-c "SELECT pg_reload_conf()"`))},
			}
	})
}
