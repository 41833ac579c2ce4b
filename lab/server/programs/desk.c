// An HTTP server in C that needs something of the host for each request: room
// on a file system, a mapping, a watch, a file, a line in the system's log. It
// answers with status 500 where it does not get that. A thread for each
// connection. Each of these is off unless asked for:
//
//   --work-us N         sleeps
//   --store DIR         writes a file of 4 KB, and deletes it
//   --map 1             maps a page of shared memory
//   --maps-held N       … and takes N mappings, or all that it may, once it serves
//   --heap-mb N         has N MB of memory in use before it serves
//   --heap-maps N       … in N mappings
//   --touch N           … of which it changes N pages, here and there
//   --forks 1           … and forks, again and again
//   --load-mb N         has --loads threads that map N MB with all pages, and unmap them
//   --watch 1           makes an inotify instance
//   --watches-held N    … and has N before it serves
//   --open PATH         opens and reads the file
//   --opens N           opens and closes the --look-in file N times
//   --append PATH       writes 4 KB to the end of the file
//   --file-limit BYTES  … which may not grow beyond this (RLIMIT_FSIZE)
//   --segment 1         makes a set of semaphores
//   --segments-held N   … in an IPC namespace of its own that has N before it serves
//   --report-kb N       writes N KB to one of a few files in the --store directory, and keeps it
//   --console PATH      writes a line to the terminal
//   --syslog PATH       sends a line to the system's log there
//   --calls N           makes N system calls that do nothing
//   --uid N             serves as this user
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define STACK_BYTES (256 << 10)
#define PAGE 4096

static struct {
	long work_us, map, maps_held, heap_mb, heap_maps, touch, forks, load_mb, loads, watch, watches_held, file_limit, segment, segments_held, calls, uid, report_kb, opens;
	const char *store, *open, *append, *syslog, *console, *look_in;
} options;

static atomic_long requests;
static int syslog_fd = -1, console_fd = -1;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int store(long number)
{
	char path[512], page[PAGE] = "LHR 120\n";
	int fd, done;

	snprintf(path, sizeof(path), "%s/booking-%ld", options.store, number);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	done = write(fd, page, sizeof(page)) == sizeof(page);
	close(fd);
	unlink(path);
	return done ? 0 : -1;
}

static int report(long number)
{
	static const char page[1024] = "LHR 120\n";
	char path[512];
	int fd, done = 1;

	snprintf(path, sizeof(path), "%s/report-%ld", options.store, number % 16);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	for (long n = 0; n < options.report_kb && done; n++)
		done = write(fd, page, sizeof(page)) == sizeof(page);
	close(fd);
	return done ? 0 : -1;
}

static int tell_console(long number)
{
	char line[120];
	int n = snprintf(line, sizeof(line), "request %ld booked a seat on the flight from LHR to FRA\n", number);

	return write(console_fd, line, n) == n ? 0 : -1;
}

static int append(void)
{
	char page[PAGE] = "LHR 120\n";
	int fd = open(options.append, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644), done;

	if (fd < 0)
		return -1;
	done = write(fd, page, sizeof(page)) == sizeof(page);
	close(fd);
	return done ? 0 : -1;
}

static int map_page(void)
{
	char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -1;
	*p = 1;
	munmap(p, PAGE);
	return 0;
}

// Every other page gets other rights, so that each is a mapping of its own. The
// threads of the load are there by then: each takes mappings too.
static void *hold_maps(void *arg)
{
	char *p;

	(void)arg;
	usleep(600000);
	p = mmap(NULL, (options.maps_held + 1) * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	for (long n = 1; n < options.maps_held; n += 2)
		if (mprotect(p + n * PAGE, PAGE, PROT_NONE))
			break;
	while (mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
		;
	return NULL;
}

static char *heap;

static void fill_heap(void)
{
	long bytes = options.heap_mb << 20;

	heap = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (heap == MAP_FAILED)
		fail("mmap");
	memset(heap, 1, bytes);
	for (long n = 0; n < options.heap_maps; n += 2) // pages with other rights are mappings of their own
		if (mprotect(heap + n * (bytes / PAGE / options.heap_maps) * PAGE, PAGE, PROT_READ))
			fail("mprotect");
}

static void touch_heap(long number)
{
	unsigned int seed = number;

	for (long n = 0; n < options.touch; n++)
		heap[rand_r(&seed) % ((options.heap_mb << 20) / PAGE) * PAGE]++;
}

// As for a snapshot, or to start a program: the child has nothing to do.
static void *fork_often(void *arg)
{
	(void)arg;
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		if (fork() == 0)
			_exit(0);
		usleep(40000);
	}
}

static void *load_table(void *arg)
{
	long bytes = options.load_mb << 20;

	(void)arg;
	for (;;) {
		char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (p == MAP_FAILED)
			break;
		munmap(p, bytes);
		usleep(10000);
	}
	return NULL;
}

static int make_watch(void)
{
	int fd = inotify_init1(IN_CLOEXEC);

	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

static int make_segment(void)
{
	int id = semget(IPC_PRIVATE, 1, 0600);

	if (id < 0)
		return -1;
	semctl(id, 0, IPC_RMID);
	return 0;
}

static int read_file(void)
{
	char text[PAGE];
	int fd = open(options.open, O_RDONLY | O_CLOEXEC), done;

	if (fd < 0)
		return -1;
	done = read(fd, text, sizeof(text)) > 0;
	close(fd);
	return done ? 0 : -1;
}

// As syslog(3): a datagram, and who sends waits while the queue is full.
static int tell_syslog(long number)
{
	char line[200];
	int n = snprintf(line, sizeof(line), "<14>booking: request %ld booked a seat", number);

	return send(syslog_fd, line, n, MSG_NOSIGNAL) == n ? 0 : -1;
}

static int serve_booking(void)
{
	long number = atomic_fetch_add(&requests, 1);
	int failed = 0;

	for (long n = 0; n < options.calls; n++)
		syscall(SYS_getppid);
	for (long n = 0; n < options.opens; n++) {
		int fd = open(options.look_in, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			return -1;
		close(fd);
	}
	if (options.work_us)
		usleep(options.work_us);
	if (options.touch)
		touch_heap(number);
	failed |= options.store && (options.report_kb ? report(number) : store(number));
	failed |= options.console && tell_console(number);
	failed |= options.append && append();
	failed |= options.map && map_page();
	failed |= options.watch && make_watch();
	failed |= options.segment && make_segment();
	failed |= options.open && read_file();
	failed |= options.syslog && tell_syslog(number);
	return failed;
}

// A request is taken to be in one piece.
static void *serve(void *arg)
{
	int fd = (int)(long)arg, last = 0;
	char request[8192], answer[256];
	ssize_t n;

	while (!last && (n = read(fd, request, sizeof(request) - 1)) > 0) {
		request[n] = 0;
		last = strstr(request, "Connection: close") != NULL;
		n = snprintf(answer, sizeof(answer), "HTTP/1.1 %s\r\nContent-Length: 12\r\nConnection: %s\r\n\r\nHello World\n",
			     serve_booking() ? "500 Internal Server Error" : "200 OK", last ? "close" : "keep-alive");
		if (write(fd, answer, n) != n)
			break;
	}
	close(fd);
	return NULL;
}

static void parse(int argc, char **argv)
{
	struct {
		const char *name;
		long *into;
	} numbers[] = {
		{"--work-us", &options.work_us}, {"--map", &options.map}, {"--maps-held", &options.maps_held},
		{"--watch", &options.watch},
		{"--heap-mb", &options.heap_mb}, {"--heap-maps", &options.heap_maps}, {"--touch", &options.touch}, {"--forks", &options.forks}, {"--load-mb", &options.load_mb}, {"--loads", &options.loads},
		{"--watches-held", &options.watches_held}, {"--file-limit", &options.file_limit},
		{"--segment", &options.segment}, {"--segments-held", &options.segments_held}, {"--calls", &options.calls}, {"--uid", &options.uid},
		{"--report-kb", &options.report_kb}, {"--opens", &options.opens},
	};
	struct {
		const char *name;
		const char **into;
	} names[] = {{"--store", &options.store}, {"--open", &options.open}, {"--append", &options.append}, {"--syslog", &options.syslog},
		     {"--console", &options.console}, {"--look-in", &options.look_in}};

	for (int i = 4; i + 1 < argc; i += 2) {
		for (size_t n = 0; n < sizeof(numbers) / sizeof(*numbers); n++)
			if (!strcmp(argv[i], numbers[n].name))
				*numbers[n].into = atol(argv[i + 1]);
		for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++)
			if (!strcmp(argv[i], names[n].name))
				*names[n].into = argv[i + 1];
	}
}

static int listener(const char *addr, int port, int backlog)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, addr, &at.sin_addr);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, backlog))
		fail("listen");
	return fd;
}

// The user comes first: limits of inotify are those of a user.
static void prepare(void)
{
	if (options.segments_held && unshare(CLONE_NEWIPC))
		fail("unshare");
	if (options.uid && (setgid(options.uid) || setuid(options.uid)))
		fail("setuid");
	for (long n = 0; n < options.watches_held; n++)
		if (inotify_init1(IN_CLOEXEC) < 0)
			break;
	for (long n = 0; n < options.segments_held; n++)
		if (semget(IPC_PRIVATE, 1, 0600) < 0)
			break;
	if (options.file_limit) {
		struct rlimit limit = {options.file_limit, RLIM_INFINITY};

		signal(SIGXFSZ, SIG_IGN);
		if (setrlimit(RLIMIT_FSIZE, &limit))
			fail("setrlimit");
	}
	if (options.console && (console_fd = open(options.console, O_WRONLY | O_NOCTTY | O_CLOEXEC)) < 0)
		fail(options.console);
	if (options.syslog) {
		struct sockaddr_un to = {.sun_family = AF_UNIX};

		snprintf(to.sun_path, sizeof(to.sun_path), "%s", options.syslog);
		syslog_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (connect(syslog_fd, (struct sockaddr *)&to, sizeof(to)))
			fail(options.syslog);
	}
}

// desk ADDRESS PORT BACKLOG [OPTION VALUE]...
int main(int argc, char **argv)
{
	int on = 1, fd, conn;
	pthread_attr_t attr;
	pthread_t thread;

	if (argc < 4)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	parse(argc, argv);
	if (options.heap_mb)
		fill_heap();
	fd = listener(argv[1], atoi(argv[2]), atoi(argv[3]));
	prepare();
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (options.forks && pthread_create(&thread, &attr, fork_often, NULL))
		fail("thread");
	for (long n = 0; options.load_mb && n < (options.loads ? options.loads : 1); n++)
		if (pthread_create(&thread, &attr, load_table, NULL))
			fail("thread");
	if (options.maps_held && pthread_create(&thread, &attr, hold_maps, NULL))
		fail("thread");
	for (;;) {
		conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		if (conn < 0)
			continue;
		setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		if (pthread_create(&thread, &attr, serve, (void *)(long)conn))
			close(conn);
	}
}
