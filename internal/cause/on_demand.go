package cause

import (
	"sync"

	"github.com/slowray/slowray/internal/observe"
)

// onDemand is what several checks, or one check of many things, ask for. The
// first that asks has it made.
type onDemand struct {
	wayGraph     func() *wayGraph
	callGraph    func() *callGraph
	outcomes     func() *opened    // of connections
	exchanges    func() *exchanges // with what died of them
	inVain       func() *inVain
	kin          func() map[kin][]int
	lastDown     func() []*observe.OOMKill
	missed       func() []int
	poolless     func() map[int]bool    // processes with an exhausted pool of connections
	onDisk       func() map[int]float64 // shares of slow time that disks hold up, by process
	outside      func() float64
	databaseEnds func() map[*ledger]*observe.Database
	lookedUp     func() []*names
	asked        func() map[*observe.NetNS]bool    // network namespaces of nameservers that services ask
	live         func() map[int]bool               // ports at which something listens at the end
	connectsOf   func() map[int][]*observe.Connect // by master
	refusedIn    func() map[uint64][]*observe.Connect
	workerless   func() map[*Service]ID
	proxyCalls   func() *proxyCalls
	pods         func() *podIndex
	podLedgers   func() podLedgers

	pools      memo[observe.Kind, []*poolUse]
	dead       memo[bool, []death]              // by whether the host ran out of memory
	containers memo[string, *observe.Container] // by id, of which the end may be missing
	suffering  memo[int, suffering]             // by master
	ways       memo[int, *way]                  // by process
	work       memo[*ledger, atWork]
	waiters    memo[string, map[int]bool] // by causes, see held
	competing  memo[*observe.Cgroup, bool]
	neededFor  memo[int, bool]                  // by master
	arrays     memo[string, *observe.RAIDArray] // by path
}

func (v *View) demand() onDemand {
	return onDemand{
		wayGraph:     sync.OnceValue(v.buildWayGraph),
		callGraph:    sync.OnceValue(v.buildCallGraph),
		outcomes:     sync.OnceValue(v.sumOutcomes),
		exchanges:    sync.OnceValue(v.buildExchanges),
		inVain:       sync.OnceValue(v.findInVain),
		kin:          sync.OnceValue(v.findKin),
		lastDown:     sync.OnceValue(v.findLastDown),
		missed:       sync.OnceValue(v.findMissed),
		poolless:     sync.OnceValue(v.findPoolless),
		onDisk:       sync.OnceValue(v.findOnDisk),
		outside:      sync.OnceValue(v.sumOutside),
		databaseEnds: sync.OnceValue(v.findDatabaseEnds),
		lookedUp:     sync.OnceValue(v.sumLookups),
		asked:        sync.OnceValue(v.findAsked),
		live:         sync.OnceValue(v.findLive),
		connectsOf:   sync.OnceValue(v.sortConnects),
		refusedIn:    sync.OnceValue(v.findRefused),
		workerless:   sync.OnceValue(v.findWorkerless),
		proxyCalls:   sync.OnceValue(v.findProxyCalls),
		pods:         sync.OnceValue(v.buildPods),
		podLedgers:   sync.OnceValue(v.findPodLedgers),

		pools: memo[observe.Kind, []*poolUse]{}, dead: memo[bool, []death]{},
		containers: memo[string, *observe.Container]{}, suffering: memo[int, suffering]{}, ways: memo[int, *way]{}, work: memo[*ledger, atWork]{},
		waiters: memo[string, map[int]bool]{}, competing: memo[*observe.Cgroup, bool]{}, neededFor: memo[int, bool]{}, arrays: memo[string, *observe.RAIDArray]{},
	}
}

// memo keeps what is asked for again and again, by what it is about.
type memo[K comparable, T any] map[K]T

func (m memo[K, T]) of(key K, find func() T) T {
	value, known := m[key]
	if !known {
		value = find()
		m[key] = value
	}
	return value
}

// unique leaves out what a list has already, and keeps its order.
func unique[T comparable](list []T) []T {
	seen := make(map[T]bool, len(list))
	out := list[:0]
	for _, x := range list {
		if !seen[x] {
			seen[x] = true
			out = append(out, x)
		}
	}
	return out
}
