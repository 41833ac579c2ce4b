/*
 * Calls of known number and duration, on command: a line on standard input says
 * what to do, "done" on standard output that it is done.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory")

unsigned short planted_semaphore __attribute__((section(".probes")));

/* A note as sys/sdt.h writes it, so that it need not be installed. */
#define STATIC_PROBE(name, argument) \
	__asm__ volatile("990: nop\n" \
		".pushsection .note.stapsdt,\"?\",\"note\"\n" \
		".balign 4\n.4byte 992f-991f, 994f-993f, 3\n" \
		"991: .asciz \"stapsdt\"\n992: .balign 4\n" \
		"993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte planted_semaphore\n" \
		".asciz \"planted\"\n.asciz \"" name "\"\n.asciz \"-4@%0\"\n994: .balign 4\n.popsection\n" \
		".ifndef _.stapsdt.base\n.pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
		".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n" \
		".size _.stapsdt.base, 1\n.popsection\n.endif\n" : : "r"(argument))

static jmp_buf before;
static int two[2];
static volatile int hangs;

static long clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* As the caller sees it, ns. */
static long now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static __thread long slept; /* how long that last took from inside, ns */

static inline __attribute__((always_inline)) void doze(int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	slept = -now();
	nanosleep(&t, 0);
	slept += now();
}

APART int nap(const char *name, int ms)
{
	KEEP;
	doze(ms);
	return ms > 40 ? -1 : name[0];
}

APART int recurse(int n)
{
	int deeper;

	KEEP;
	if (!n)
		return 0;
	deeper = recurse(n - 1);
	KEEP;
	return deeper + 1;
}

APART void jump(int away)
{
	KEEP;
	if (away)
		longjmp(before, 1);
	KEEP;
}

APART int tail_target(int n)
{
	doze(5);
	return n + 1;
}

APART int tail(int n)
{
	KEEP;
	return tail_target(n + 2);
}

APART void burn(int ms)
{
	long until = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000L;

	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until)
		;
}

APART void *hang(void *unused)
{
	char c;

	hangs = 1;
	while (read(two[0], &c, 1) == 1)
		KEEP;
	return 0;
}

APART int hot(int n)
{
	KEEP;
	return n;
}

APART void *allocate(size_t n)
{
	KEEP;
	return n > 1000 ? 0 : malloc(n);
}

/* A nap; prints how long it took from inside and as the caller sees it. */
static void timed_nap(const char *name, int ms)
{
	long took = -now();

	nap(name, ms);
	took += now();
	printf("%ld %ld\n", slept, took);
}

static void *napper(void *unused)
{
	for (int i = 0; i < 10; i++)
		timed_nap("thread", 10);
	return 0;
}

static void obey(const char *command)
{
	pthread_t threads[4];
	int n;

	if (sscanf(command, "hot %d", &n) == 1) {
		for (int i = 0; i < n; i++)
			hot(i);
	} else if (!strcmp(command, "nap")) {
		for (int i = 0; i < 20; i++)
			timed_nap(i % 2 ? "odd\x1b[31m\xff" : "even", i < 18 ? 10 : 50);
	} else if (!strcmp(command, "recurse")) {
		recurse(20);
		recurse(40); /* deeper than is kept */
	} else if (!strcmp(command, "jump")) {
		for (volatile int i = 0; i < 10; i++)
			if (!setjmp(before))
				jump(i % 2);
	} else if (!strcmp(command, "tail")) {
		long took = -now(), inside = 0;

		for (int i = 0; i < 5; i++) {
			tail(i);
			inside += slept;
		}
		printf("%ld %ld\n", inside, took + now());
	} else if (!strcmp(command, "burn")) {
		long used = -clock_ns(CLOCK_THREAD_CPUTIME_ID);

		for (int i = 0; i < 4; i++)
			burn(25);
		printf("%ld\n", used + clock_ns(CLOCK_THREAD_CPUTIME_ID));
	} else if (!strcmp(command, "threads")) {
		for (int i = 0; i < 4; i++)
			pthread_create(&threads[i], 0, napper, 0);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], 0);
	} else if (!strcmp(command, "hang")) {
		if (pipe(two))
			exit(1);
		pthread_create(&threads[0], 0, hang, 0);
		while (!hangs)
			usleep(1000);
		usleep(20000);
	} else if (!strcmp(command, "allocate")) {
		for (int i = 0; i < 6; i++)
			free(allocate(i < 4 ? 10 : 2000));
	} else if (!strcmp(command, "probe")) {
		long took = 0, inside = 0;

		for (int i = 0; i < 8; i++) {
			took -= now();
			STATIC_PROBE("work__start", i * 3);
			doze(10);
			STATIC_PROBE("work__done", i);
			took += now();
			inside += slept;
			STATIC_PROBE("alone", -i);
		}
		printf("%ld %ld\n", inside, took);
	} else if (!strcmp(command, "semaphore")) {
		printf("semaphore %d\n", planted_semaphore);
	}
}

int main(void)
{
	char line[64];

	setvbuf(stdout, 0, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		obey(line);
		puts("done");
	}
	return 0;
}
