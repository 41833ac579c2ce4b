/* One of a chain of small HTTP services: it does something, asks the next, answers.
 * A thread for each connection, or so many workers that accept by themselves. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long sleep_us, lock_us, spin_us, every = 1, workers, log_bytes, backlog = 1024, timeout_ms = 10000;
static const char *next_host, *next_port, *read_path, *flock_path;
static int listener;
static long count;
static pthread_mutex_t stock = PTHREAD_MUTEX_INITIALIZER;
static __thread int next_fd = -1;

static void pause_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };
	nanosleep(&t, NULL);
}

__attribute__((noinline)) static long tariff(long us)
{
	struct timespec t;
	long total = 0, end;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	end = t.tv_sec * 1000000000L + t.tv_nsec + us * 1000;
	do {
		for (long n = 0; n < 20000; n++)
			total = (total * 31 + n) % 1000003;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	} while (t.tv_sec * 1000000000L + t.tv_nsec < end);
	return total;
}

__attribute__((noinline)) static void reserve(void)
{
	pthread_mutex_lock(&stock);
	pause_us(lock_us);
	pthread_mutex_unlock(&stock);
}

__attribute__((noinline)) static void await_supplier(void) { pause_us(sleep_us); }

__attribute__((noinline)) static int take_ticket(void)
{
	int fd = open(flock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return 500;
	flock(fd, LOCK_EX);
	close(fd);
	return 200;
}

__attribute__((noinline)) static int read_terms(void)
{
	char part[4096];
	int fd = open(read_path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 500;
	while (read(fd, part, sizeof part) > 0)
		;
	close(fd);
	return 200;
}

__attribute__((noinline)) static void write_log(void)
{
	char line[16384];
	memset(line, 'x', sizeof line);
	line[log_bytes] = '\n';
	for (long at = 0; at <= log_bytes;) {
		long n = write(1, line + at, log_bytes + 1 - at);
		if (n <= 0)
			return;
		at += n;
	}
}

/* Reads to the end of a head and of the body after it. 0 at the end of the connection. */
static int message(int fd, char *text, size_t size)
{
	size_t used = 0;
	while (used < size - 1) {
		long n = read(fd, text + used, size - 1 - used);
		if (n <= 0)
			return 0;
		used += n;
		text[used] = 0;
		char *end = strstr(text, "\r\n\r\n");
		if (!end)
			continue;
		char *length = strcasestr(text, "content-length:");
		size_t body = length && length < end ? strtoul(length + 15, NULL, 10) : 0;
		if (used >= (size_t)(end + 4 - text) + body)
			return 1;
	}
	return 0;
}

__attribute__((noinline)) static int ask_next(void)
{
	char text[4096];
	for (int turn = 0; turn < 2; turn++) {
		int fresh = next_fd < 0, one = 1;
		if (fresh) {
			struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(next_port)) };
			struct timeval limit = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };
			inet_pton(AF_INET, next_host, &to.sin_addr);
			next_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
			setsockopt(next_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
			setsockopt(next_fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
			setsockopt(next_fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
			if (connect(next_fd, (struct sockaddr *)&to, sizeof to) < 0) {
				close(next_fd);
				next_fd = -1;
				return 502;
			}
		}
		int n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", next_host);
		if (write(next_fd, text, n) == n && message(next_fd, text, sizeof text)) {
			int status = atoi(text + 9);
			if (strcasestr(text, "connection: close")) {
				close(next_fd);
				next_fd = -1;
			}
			return status;
		}
		close(next_fd);
		next_fd = -1;
		if (fresh)
			return 502;
	}
	return 502;
}

static int answer(void)
{
	int status = 200;
	if (__sync_add_and_fetch(&count, 1) % every == 0) {
		if (sleep_us)
			await_supplier();
		if (spin_us)
			tariff(spin_us);
		if (lock_us)
			reserve();
	}
	if (flock_path)
		status = take_ticket();
	if (read_path && status == 200)
		status = read_terms();
	if (log_bytes)
		write_log();
	return next_host && status == 200 ? ask_next() : status;
}

static void serve(int fd, int keep)
{
	char text[4096];
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	while (message(fd, text, sizeof text)) {
		int stays = keep && !strcasestr(text, "connection: close");
		int status = answer();
		int n = snprintf(text, sizeof text, "HTTP/1.1 %d %s\r\nContent-Length: 3\r\nConnection: %s\r\n\r\n%s", status,
				 status < 400 ? "OK" : "Error", stays ? "keep-alive" : "close", status < 400 ? "ok\n" : "no\n");
		if (write(fd, text, n) != n || !stays)
			break;
	}
	close(fd);
	if (next_fd >= 0 && keep) {
		close(next_fd);
		next_fd = -1;
	}
}

static void *connection(void *fd)
{
	serve((int)(long)fd, 1);
	return NULL;
}

static void *worker(void *unused)
{
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			serve(fd, 0);
		else
			pause_us(10000);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct { const char *name; long *value; } numbers[] = {
		{ "--sleep-us", &sleep_us }, { "--lock-us", &lock_us }, { "--spin-us", &spin_us }, { "--every", &every },
		{ "--workers", &workers }, { "--log", &log_bytes }, { "--backlog", &backlog }, { "--timeout-ms", &timeout_ms },
	};
	struct { const char *name; const char **value; } texts[] = { { "--read", &read_path }, { "--flock", &flock_path } };
	struct sockaddr_in at = { .sin_family = AF_INET };
	int one = 1;

	signal(SIGPIPE, SIG_IGN);
	for (int i = 3; i + 1 < argc; i += 2) {
		for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
			if (!strcmp(argv[i], numbers[n].name))
				*numbers[n].value = atol(argv[i + 1]);
		for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
			if (!strcmp(argv[i], texts[n].name))
				*texts[n].value = argv[i + 1];
		if (!strcmp(argv[i], "--next")) {
			next_host = strtok(argv[i + 1], ":");
			next_port = strtok(NULL, ":");
		}
	}
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	at.sin_port = htons(atoi(argv[2]));
	inet_pton(AF_INET, argv[1], &at.sin_addr);
	if (bind(listener, (struct sockaddr *)&at, sizeof at) < 0 || listen(listener, backlog) < 0) {
		perror("listen");
		return 1;
	}
	pthread_attr_t small;
	pthread_t id;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 << 10);
	pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	for (long n = 1; n < workers; n++)
		pthread_create(&id, &small, worker, NULL);
	if (workers)
		worker(NULL);
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0 || pthread_create(&id, &small, connection, (void *)(long)fd)) {
			if (fd >= 0)
				close(fd);
			pause_us(1000);
		}
	}
}
