package wait

import (
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// planted starts a C program; it prints a line of thread numbers when all
// threads are where they belong, or nearly.
func planted(t *testing.T, body string) (child, []int) {
	t.Helper()
	path := compile(t, `
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static int tid(void) { return (int)syscall(SYS_gettid); }
static void spawn(void *(*f)(void *), void *arg) {
	pthread_t t;
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	if (pthread_create(&t, &small, f, arg)) exit(3);
}
`+body)
	c := startCommand(t, exec.Command(path), "")
	var tids []int
	for _, f := range strings.Fields(c.says(t)) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		tids = append(tids, n)
	}
	return c, tids
}

// threadHops compares the threads of a chain, by their numbers.
func threadHops(t *testing.T, c *observe.WaitChain, want ...int) {
	t.Helper()
	var got []int
	for _, h := range c.Hops {
		got = append(got, h.TID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("threads %v, want %v\n%s", got, want, chainText(c))
	}
}

func startsAt(tid int, n int) func(*observe.WaitChain) bool {
	return func(c *observe.WaitChain) bool { return slices.Contains(c.Threads, tid) && len(c.Hops) == n }
}

// TestMutexes: every kind of mutex that glibc has names its owner.
func TestMutexes(t *testing.T) {
	c, tids := planted(t, `
static pthread_mutex_t m[6];
static void *locks(void *arg) { pthread_mutex_lock(arg); return 0; }
static void *holds(void *arg) {
	for (int i = 0; i < 6; i++) pthread_mutex_lock(&m[i]);
	pthread_mutex_lock(&m[1]); // recursive
	printf("%d\n", tid());
	fflush(stdout);
	sleep(30);
	return 0;
}
int main(void) {
	int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_NORMAL};
	alarm(30);
	for (int i = 0; i < 6; i++) {
		pthread_mutexattr_t a;
		pthread_mutexattr_init(&a);
		pthread_mutexattr_settype(&a, types[i]);
		if (i == 4) pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
		if (i == 5) pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
		pthread_mutex_init(&m[i], &a);
	}
	spawn(holds, 0);
	usleep(100000);
	for (int i = 0; i < 6; i++) spawn(locks, &m[i]);
	sleep(30);
}
`)
	owner := tids[0]
	var o *observe.Waits
	for range 40 {
		var err error
		if o, err = NewReader(host.Default()).Look(context.Background(), c.pid, testWindow); err != nil {
			t.Fatal(err)
		}
		locks := 0
		for i := range o.Chains {
			chain := &o.Chains[i]
			if chain.Hops[0].Kind != observe.WaitLock {
				continue
			}
			locks++
			if len(chain.Hops) != 2 || chain.Hops[1].TID != owner || chain.Hops[1].How != observe.HowOwner || chain.End != observe.EndSleep || !chain.Culprit() && !chain.Moving() {
				t.Fatal(chainText(chain))
			}
		}
		if locks == 6 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	for i := range o.Chains {
		t.Log(chainText(&o.Chains[i]))
	}
	t.Error("not every mutex told its owner")
}

func TestDeadlock(t *testing.T) {
	c, tids := planted(t, `
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static void *other(void *arg) {
	pthread_mutex_lock(&b);
	printf("%d\n", tid());
	fflush(stdout);
	pthread_mutex_lock(&a);
	return 0;
}
static void *bystander(void *arg) { pthread_mutex_lock(&a); return 0; }
int main(void) {
	alarm(30);
	pthread_mutex_lock(&a);
	spawn(other, 0);
	usleep(200000);
	spawn(bystander, 0);
	pthread_mutex_lock(&b);
}
`)
	chain := lookFor(t, c.pid, func(w *observe.WaitChain) bool { return startsAt(c.pid, 2)(w) && w.Deadlock() })
	threadHops(t, chain, c.pid, tids[0])
	if chain.BackTo != 0 || chain.End != observe.EndCycle || !chain.Culprit() {
		t.Error(chainText(chain))
	}
	// Somebody else waits like one of them, and will for ever too.
	chain = lookFor(t, c.pid, func(w *observe.WaitChain) bool { return slices.Contains(w.Threads, tids[0]) && w.Count == 2 })
	if !chain.Deadlock() || !chain.Culprit() {
		t.Error(chainText(chain))
	}
}

func TestSelfDeadlock(t *testing.T) {
	c, _ := planted(t, `
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;
int main(void) {
	alarm(30);
	pthread_mutex_lock(&a);
	printf("%d\n", tid());
	fflush(stdout);
	pthread_mutex_lock(&a);
}
`)
	chain := lookFor(t, c.pid, func(w *observe.WaitChain) bool { return w.BackTo == 0 })
	threadHops(t, chain, c.pid)
	if !chain.Deadlock() {
		t.Error(chainText(chain))
	}
}

// TestReadWriteLock: readers and writers that wait for a writer name it; one
// that waits for readers says that they are not known.
func TestReadWriteLock(t *testing.T) {
	c, tids := planted(t, `
static pthread_rwlock_t w = PTHREAD_RWLOCK_INITIALIZER, r = PTHREAD_RWLOCK_INITIALIZER;
static sem_t there;
static int tids[3];
static void *reads(void *arg) { tids[0] = tid(); sem_post(&there); pthread_rwlock_rdlock(arg); return 0; }
static void *writes(void *arg) { tids[arg == &r ? 2 : 1] = tid(); sem_post(&there); pthread_rwlock_wrlock(arg); return 0; }
int main(void) {
	alarm(30);
	pthread_rwlock_wrlock(&w);
	pthread_rwlock_rdlock(&r);
	spawn(reads, &w);
	spawn(writes, &w);
	spawn(writes, &r);
	for (int i = 0; i < 3; i++) sem_wait(&there);
	printf("%d %d %d\n", tids[0], tids[1], tids[2]);
	fflush(stdout);
	sleep(30);
}
`)
	for _, waiter := range tids[:2] {
		chain := lookFor(t, c.pid, startsAt(waiter, 2))
		threadHops(t, chain, waiter, c.pid)
		if chain.Hops[0].Kind != observe.WaitLock || !chain.Culprit() {
			t.Error(chainText(chain))
		}
	}
	chain := lookFor(t, c.pid, startsAt(tids[2], 1))
	if chain.End != observe.EndNoOwner || !strings.Contains(chain.Text, "1 threads that read") {
		t.Error(chainText(chain))
	}
}

// TestJoinAndStream: pthread_join, and the lock of stdout that a thread holds
// which cannot write.
func TestJoinAndStream(t *testing.T) {
	r, w := pipe(t)
	path := compile(t, `
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static char big[1 << 20];
static FILE *out;
static void *prints(void *arg) { usleep(100000); fputs("x", out); return 0; }
static void *fills(void *arg) { fwrite(big, 1, sizeof big, out); fflush(out); return 0; }
int main(void) {
	pthread_t t, u;
	alarm(30);
	out = fdopen(3, "w");
	pthread_create(&t, 0, fills, 0);
	pthread_create(&u, 0, prints, 0);
	pthread_join(u, 0);
}
`)
	c := startCommand(t, exec.Command(path), "", w)
	reader := start(t, "sleep", r)
	r.Close()
	w.Close()
	chain := lookFor(t, c.pid, func(w *observe.WaitChain) bool { return w.Threads[0] == c.pid && len(w.Hops) == 4 })
	kinds := []observe.WaitKind{observe.WaitThread, observe.WaitLock, observe.WaitPipe, observe.WaitSleep}
	for i, h := range chain.Hops {
		if h.Kind != kinds[i] {
			t.Errorf("hop %d: %s, want %s\n%s", i, h.Kind, kinds[i], chainText(chain))
		}
	}
	if chain.Hops[3].Process.PID != reader.pid || chain.End != observe.EndSleep || !chain.Culprit() {
		t.Error(chainText(chain))
	}
}

// TestSharedMutex: a mutex in memory that two processes share.
func TestSharedMutex(t *testing.T) {
	c, tids := planted(t, `
int main(void) {
	alarm(30);
	pthread_mutex_t *m = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(m, &a);
	pthread_mutex_lock(m);
	int pid = fork();
	if (pid == 0) {
		alarm(30);
		pthread_mutex_lock(m);
		_exit(0);
	}
	printf("%d\n", pid);
	fflush(stdout);
	sleep(30);
}
`)
	t.Cleanup(func() { _ = unix.Kill(tids[0], unix.SIGKILL) })
	chain := lookFor(t, tids[0], startsAt(tids[0], 2))
	threadHops(t, chain, tids[0], c.pid)
	if chain.Hops[1].How != observe.HowOwner || !chain.Culprit() {
		t.Error(chainText(chain))
	}
}

// TestOwnerEnded: the thread that took the mutex ended without letting it go.
func TestOwnerEnded(t *testing.T) {
	c, tids := planted(t, `
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;
static void *forgets(void *arg) {
	pthread_mutex_lock(&a);
	printf("%d\n", tid());
	fflush(stdout);
	return 0;
}
int main(void) {
	pthread_t t;
	alarm(30);
	pthread_create(&t, 0, forgets, 0);
	pthread_join(t, 0);
	pthread_mutex_lock(&a);
}
`)
	chain := lookFor(t, c.pid, endsIn(1, observe.EndGone))
	if !strings.Contains(chain.Text, strconv.Itoa(tids[0])) || !chain.Culprit() {
		t.Error(chainText(chain))
	}
}

// TestNoOwner: who waits on a condition variable or a semaphore waits for
// nobody that is written anywhere, and no owner must be made up, whatever lies
// in memory next to it.
func TestNoOwner(t *testing.T) {
	c, _ := planted(t, `
static struct { sem_t s; int junk[8]; } s;
static struct { pthread_cond_t c; pthread_mutex_t m; } v = {PTHREAD_COND_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
// A lock of its own kind: 2 when contended, followed by what looks like a
// thread's number.
static struct { int word, zero, tid, junk[13]; } own = {2, 0, 0, {1, 0, 0, 7}};
static void *sems(void *arg) { sem_wait(&s.s); return 0; }
static void *conds(void *arg) { pthread_mutex_lock(&v.m); for (;;) pthread_cond_wait(&v.c, &v.m); }
static void *owns(void *arg) { for (;;) syscall(SYS_futex, &own.word, 128, 2, 0); }
int main(void) {
	alarm(30);
	sem_init(&s.s, 0, 0);
	own.tid = tid();
	for (int i = 0; i < 8; i++) s.junk[i] = tid();
	spawn(sems, 0);
	spawn(conds, 0);
	spawn(owns, 0);
	usleep(100000);
	printf("%d\n", tid());
	fflush(stdout);
	sleep(30);
}
`)
	chain := lookFor(t, c.pid, func(w *observe.WaitChain) bool { return w.Count == 3 })
	if len(chain.Hops) != 1 || chain.Hops[0].Kind != observe.WaitCond || chain.End != observe.EndNoOwner || chain.Culprit() {
		t.Error(chainText(chain))
	}
}

// TestManyThreads: two thousand threads behind one mutex are one chain, at a
// price that a host in trouble can afford.
func TestManyThreads(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	const threads = 2000
	c, _ := planted(t, `
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;
static void *locks(void *arg) { pthread_mutex_lock(&a); return 0; }
int main(void) {
	alarm(60);
	pthread_mutex_lock(&a);
	for (int i = 0; i < 2000; i++) spawn(locks, 0);
	usleep(300000);
	printf("%d\n", tid());
	fflush(stdout);
	sleep(60);
}
`)
	chain := lookFor(t, c.pid, func(w *observe.WaitChain) bool { return w.Count == threads })
	threadHops(t, chain, chain.Threads[0], c.pid)
	if len(chain.Threads) != maxListed {
		t.Error(len(chain.Threads))
	}
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		t.Fatal(err)
	}
	if _, err := NewReader(host.Default()).Look(context.Background(), c.pid, testWindow); err != nil {
		t.Fatal(err)
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		t.Fatal(err)
	}
	used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	t.Logf("%d threads: %s of CPU", threads, used)
	if used > time.Second {
		t.Errorf("%s of CPU for %d threads", used, threads)
	}
}
