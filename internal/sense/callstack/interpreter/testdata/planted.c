/* planted MODE SECONDS: computes, three parts in burn_most and one in burn_some,
 * or sleeps 20 ms at a time in wait_on_db, and prints how long each took, ns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

volatile unsigned long sink;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* A turn takes the same time in both: it waits for the one before in a register. In memory
 * that depends on whether the CPU forwards a store at once (Zen, Golden Cove), which it
 * does for the one loop and not for the other. */
static inline __attribute__((always_inline)) unsigned long turn(unsigned long x)
{
	x ^= x << 13;
	x ^= x >> 7;
	return x ^ x << 17;
}

__attribute__((noinline)) void burn_most(void)
{
	unsigned long x = sink | 1;

	for (int i = 0; i < 3000000; i++)
		x = turn(x);
	sink = x;
}

__attribute__((noinline)) void burn_some(void)
{
	unsigned long x = sink | 1;

	for (int i = 0; i < 1000000; i++)
		x = turn(x);
	sink = x;
}

__attribute__((noinline)) void wait_on_db(void)
{
	struct timespec t = { 0, 20000000 };

	nanosleep(&t, NULL);
	sink++;
}

__attribute__((noinline)) void handle_request(int wait)
{
	if (wait) {
		double began = now();

		wait_on_db();
		printf("%.0f\n", (now() - began) * 1e9);
		fflush(stdout);
	} else {
		burn_most();
		burn_some();
	}
	sink++; /* no tail call */
}

int main(int argc, char **argv)
{
	double end = now() + atof(argv[2]);

	while (now() < end)
		handle_request(!strcmp(argv[1], "wait"));
	return 0;
}
