package cause

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

const (
	RAIDDegraded  ID = "raid-degraded"
	CachesDropped ID = "caches-dropped"
	SlabBloat     ID = "slab-bloat"
)

// Causes about the state of storage and memory that make requests wait for a
// disk: they are found only together with requests that do wait for it, which
// is then told under them.
var (
	// raidDegraded: a software RAID lacks a device, or is at work on itself.
	raidDegraded = storageState(RAIDDegraded, checkRAID, "A software RAID is degraded or resyncing")
	// cachesDropped: somebody wrote to /proc/sys/vm/drop_caches.
	cachesDropped = storageState(CachesDropped, checkCachesDropped, "The page cache was dropped (drop_caches)")
	// slabBloat: the kernel's own objects take the memory.
	slabBloat = storageState(SlabBloat, checkSlab, "Kernel slab memory causes memory pressure")
)

func storageState(id ID, check func(*View) Result, title string) Cause {
	return Cause{
		ID: id, Title: title, Layer: LayerMachine, Class: ClassHost, Needs: []observe.Kind{observe.KindWaits, observe.KindMemory}, Check: check,
	}
}

var (
	storageWaits = []ID{BlockedOnDisk, FsyncBound, JournalCommitStall, DirtyThrottled, WritebackThrottled, DirectoryLockContention, FileWriteLock}
	onVolumes    = append([]ID{NFSStalled, HungTask}, storageWaits...)
	readWaits    = []ID{BlockedOnDisk, SwapThrash}
	memoryWaits  = []ID{DirectReclaimStall, CompactionStall, SwapThrash, BlockedOnDisk}
)

// waitsFor is what costs slow requests most of some causes; nil when none of
// them does harm.
func (v *View) waitsFor(ids []ID, match func(*root) bool) *root {
	for _, r := range v.roots { // most slow time first
		for _, id := range ids {
			if r.cause == id && (match == nil || match(r)) && v.harmless(r) == "" {
				return r
			}
		}
	}
	return nil
}

// stateFinding is a finding about what is behind a wait.
func (v *View) stateFinding(r *root, evidence []Evidence, fix string, commands ...shell.Command) Result {
	f := v.rootFinding(r, func(r *root, f *Finding) {
		f.Subject.Path = r.example().Path
		f.Evidence = append(f.Evidence, evidence...)
		f.Fix.Text, f.Fix.Commands = fix, commands
	})
	return Result{Findings: []Finding{f}}
}

// arrayOf is the array that a path is on, of those that are not whole.
func (v *View) arrayOf(path string) *observe.RAIDArray {
	return v.arrays.of(path, func() *observe.RAIDArray {
		for i := range v.Filesystems {
			f := &v.Filesystems[i]
			for j := range v.State.Arrays {
				if a := &v.State.Arrays[j]; f.Dir == path && strings.HasPrefix(f.Source, "/dev/"+a.Name) {
					return a
				}
			}
		}
		return nil
	})
}

func checkRAID(v *View) Result {
	if len(v.State.Arrays) == 0 {
		return ruledOut("no software RAID lacks a disk or is at work on itself")
	}
	text := func(a *observe.RAIDArray) string {
		s := fmt.Sprintf("%s (%s) has %d of %d disks", a.Name, a.Level, a.Working, a.Devices)
		if a.Action != "" {
			s += ", and is at work on itself (" + a.Action + ")"
		}
		return s
	}
	r := v.waitsFor(storageWaits, func(r *root) bool { return v.arrayOf(r.example().Path) != nil })
	if r == nil {
		return ruledOut(text(&v.State.Arrays[0]) + ", but no request waits for it")
	}
	a := v.arrayOf(r.example().Path)
	e := []Evidence{{Fact: "array", Value: text(a), Source: "/proc/mdstat"}}
	if l := v.kernelLine("raid-failure"); l != nil {
		e = append(e, Evidence{Fact: "the kernel logged", Value: l.Example, Source: "kernel log"})
	}
	return v.stateFinding(r, e, "Replace the disk that failed. While people wait, the rebuild or check can be slowed down, or put off.",
		shell.Line("cat /proc/mdstat"), shell.Line("mdadm --detail /dev/%s", a.Name), shell.Line("sysctl dev.raid.speed_limit_max"))
}

func checkCachesDropped(v *View) Result {
	drops := v.Use.VM["drop_pagecache"] + v.Use.VM["drop_slab"]
	if drops == 0 {
		return ruledOut("no drop of the caches was counted")
	}
	who := ""
	var e []Evidence
	if l := v.kernelLine("drop-caches"); l != nil {
		who = " by " + l.Subject
		e = append(e, Evidence{Fact: "the kernel logged", Value: l.Example, Source: "kernel log"})
	}
	text := fmt.Sprintf("the caches were dropped %s times%s", count(drops), who)
	r := v.waitsFor(readWaits, nil)
	if r == nil {
		return ruledOut(text + ", and no request waits for what was in them")
	}
	e = append([]Evidence{{Fact: "drops of the caches in the window", Value: drops, Source: "/proc/vmstat drop_pagecache, drop_slab"}}, e...)
	return v.stateFinding(r, e, strings.TrimSuffix("Find who drops the caches"+who, " ")+" (a cron job, a timer, an agent), and take it out: the kernel frees caches by itself when memory is needed.",
		shell.Line("dmesg | grep drop_caches"), shell.Line("grep -rs drop_caches /etc/cron* /var/spool/cron /etc/systemd /usr/local"))
}

func checkSlab(v *View) Result {
	m := &v.Use.Memory
	text := fmt.Sprintf("the kernel's own objects take %d MB, %s of the memory", m.SlabBytes>>20, percent(ratio(m.SlabBytes, m.TotalBytes)))
	if ratio(m.SlabBytes, m.TotalBytes) < slabShare {
		return ruledOut("no great part of the memory: " + text)
	}
	if 2*m.SlabKeptBytes < m.SlabBytes {
		return ruledOut(text + ", most of which can be freed")
	}
	r := v.waitsFor(memoryWaits, nil)
	if r == nil {
		return ruledOut(text + ", and no request waits for memory")
	}
	return v.stateFinding(r, []Evidence{
		{Fact: "objects of the kernel", Value: m.SlabBytes, Limit: m.TotalBytes, Unit: "bytes", Source: "/proc/meminfo Slab"},
		{Fact: "of them, what cannot be freed", Value: m.SlabKeptBytes, Unit: "bytes", Source: "/proc/meminfo SUnreclaim"},
	}, "Find which objects they are, and what makes them: very many files touched, very many connections or control groups, or a leak of the kernel.", shell.Line("slabtop -o -s c | head -20"))
}
