// An HTTP server as people write it in C: a POSIX thread for each connection,
// glibc's mutexes, blocking calls. It answers once it has done what was asked
// to do for a request; each of these is off unless asked for:
//
//   --work-us N         sleeps, outside any lock
//   --lock-us N         sleeps inside the lock that all requests take
//   --transfers N       the first two of N requests lock two accounts
//   --opposite 1        … the second of them in the other order
//   --log BYTES         writes a line to standard output
//   --flock PATH        takes a lock of the file, for --flock-us
//   --open-lock 1       … one of fcntl(2), for the open file
//   --read PATH         opens and reads the file
//   --scan PATH         reads --pieces pieces of 64 kB of the file, here and there
//   --mail IP:PORT      each --mail-every Nth request has a mail host greet it
//   --pool N            has N threads that wait for work that never comes
//   --workers N         is N processes, each with a socket of its own at the port
//   --threads N         has N threads for all connections, which wait in its queue
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define MAIL_PATIENCE_US 500000 // beyond a second
#define TRANSFER_US 1000 // long enough for the second to come
#define PIECE_BYTES (64 << 10)
#define STACK_BYTES (256 << 10) // a connection may hang for ever, and many do

static struct {
	long work_us, lock_us, transfers, opposite, log, mail_every, pool, pieces, flock_us, open_lock, workers, threads;
	const char *flock, *read, *scan;
	struct sockaddr_in mail;
} options;

static pthread_mutex_t catalogue = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t account_a = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t account_b = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_filled = PTHREAD_COND_INITIALIZER;
static atomic_long requests;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void update_catalogue(void)
{
	pthread_mutex_lock(&catalogue);
	usleep(options.lock_us);
	pthread_mutex_unlock(&catalogue);
}

static void transfer(pthread_mutex_t *from, pthread_mutex_t *to)
{
	pthread_mutex_lock(from);
	usleep(TRANSFER_US);
	pthread_mutex_lock(to);
	pthread_mutex_unlock(to);
	pthread_mutex_unlock(from);
}

static void move_money(long number)
{
	long turn = number % options.transfers;

	if (turn > 1)
		return;
	if (turn == 1 && options.opposite)
		transfer(&account_b, &account_a);
	else
		transfer(&account_a, &account_b);
}

// A line longer than PIPE_BUF could be torn apart, so none is.
static void write_log(long number)
{
	char line[4096];
	size_t size = options.log;

	if (size > sizeof(line))
		size = sizeof(line);
	memset(line, '.', size);
	snprintf(line, size, "request %ld booked a seat ", number);
	line[strlen(line)] = '.';
	line[size - 1] = '\n';
	if (write(STDOUT_FILENO, line, size) < 0)
		fail("log");
}

static void reserve_seat(void)
{
	int fd = open(options.flock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		fail(options.flock);
	if (options.open_lock)
		fcntl(fd, F_OFD_SETLKW, &(struct flock){.l_type = F_WRLCK});
	else
		flock(fd, LOCK_EX);
	if (options.flock_us)
		usleep(options.flock_us);
	close(fd); // that unlocks it
}

static void read_prices(void)
{
	char prices[4096];
	int fd = open(options.read, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail(options.read);
	if (read(fd, prices, sizeof(prices)) < 0)
		fail(options.read);
	close(fd);
}

static void scan_fares(long number)
{
	static __thread char piece[PIECE_BYTES];
	unsigned int seed = number;
	int fd = open(options.scan, O_RDONLY | O_CLOEXEC);
	off_t pieces = lseek(fd, 0, SEEK_END) / PIECE_BYTES;

	if (fd < 0 || pieces < 1)
		fail(options.scan);
	for (long n = 0; n < options.pieces; n++)
		if (pread(fd, piece, sizeof(piece), rand_r(&seed) % pieces * PIECE_BYTES) < 0)
			fail(options.scan);
	close(fd);
}

static void send_mail(void)
{
	struct timeval patience = {.tv_sec = 1, .tv_usec = MAIL_PATIENCE_US};
	char greeting[256];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)); // connect() too
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&options.mail, sizeof(options.mail)) == 0 &&
	    write(fd, "HELO booking\r\n", 14) > 0)
		(void)!read(fd, greeting, sizeof(greeting));
	close(fd);
}

static void book(void)
{
	long number = atomic_fetch_add(&requests, 1);

	if (options.lock_us)
		update_catalogue();
	if (options.transfers)
		move_money(number);
	if (options.flock)
		reserve_seat();
	if (options.read)
		read_prices();
	if (options.scan)
		scan_fares(number);
	if (options.mail_every && number % options.mail_every == 0)
		send_mail();
	if (options.work_us)
		usleep(options.work_us);
	if (options.log)
		write_log(number);
}

// A request is taken to be in one piece, and what it says not to matter but
// for whether the connection is to be kept.
static void *serve(void *arg)
{
	int fd = (int)(long)arg, last = 0;
	char request[8192], answer[256];
	ssize_t n;

	while (!last && (n = read(fd, request, sizeof(request) - 1)) > 0) {
		request[n] = 0;
		last = strstr(request, "Connection: close") != NULL;
		book();
		n = snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: %s\r\n\r\nHello World\n",
			     last ? "close" : "keep-alive");
		if (write(fd, answer, n) != n)
			break;
	}
	close(fd);
	return NULL;
}

// Connections that wait for a worker. A full queue loses none: who accepts waits.
#define QUEUED 8192
static int queued[QUEUED];
static unsigned long queue_in, queue_out;

static void *work(void *arg)
{
	int conn;

	prctl(PR_SET_NAME, (char *)arg);
	for (;;) {
		pthread_mutex_lock(&queue_lock);
		while (queue_in == queue_out)
			pthread_cond_wait(&queue_filled, &queue_lock);
		conn = queued[queue_out++ % QUEUED];
		pthread_mutex_unlock(&queue_lock);
		serve((void *)(long)conn);
	}
	return NULL;
}

static void enqueue(int conn)
{
	pthread_mutex_lock(&queue_lock);
	while (queue_in - queue_out == QUEUED) {
		pthread_mutex_unlock(&queue_lock);
		usleep(1000);
		pthread_mutex_lock(&queue_lock);
	}
	queued[queue_in++ % QUEUED] = conn;
	pthread_cond_signal(&queue_filled);
	pthread_mutex_unlock(&queue_lock);
}

static void *wait_for_work(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&queue_lock);
	for (;;)
		pthread_cond_wait(&queue_filled, &queue_lock);
	return NULL;
}

static int start_thread(void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	return pthread_create(&thread, &attr, run, arg);
}

static void parse_mail(char *target)
{
	char *colon = strchr(target, ':');

	if (!colon)
		fail(target);
	*colon = 0;
	options.mail.sin_family = AF_INET;
	options.mail.sin_port = htons(atoi(colon + 1));
	inet_pton(AF_INET, target, &options.mail.sin_addr);
}

static void parse(int argc, char **argv)
{
	struct {
		const char *name;
		long *into;
	} numbers[] = {
		{"--work-us", &options.work_us},	   {"--lock-us", &options.lock_us}, {"--transfers", &options.transfers},
		{"--opposite", &options.opposite},	   {"--log", &options.log},	    {"--pool", &options.pool},
		{"--mail-every", &options.mail_every},	   {"--pieces", &options.pieces},  {"--flock-us", &options.flock_us},
		{"--open-lock", &options.open_lock},	   {"--workers", &options.workers}, {"--threads", &options.threads},
	};

	for (int i = 4; i + 1 < argc; i += 2) {
		for (size_t n = 0; n < sizeof(numbers) / sizeof(*numbers); n++)
			if (!strcmp(argv[i], numbers[n].name))
				*numbers[n].into = atol(argv[i + 1]);
		if (!strcmp(argv[i], "--flock"))
			options.flock = argv[i + 1];
		if (!strcmp(argv[i], "--read"))
			options.read = argv[i + 1];
		if (!strcmp(argv[i], "--scan"))
			options.scan = argv[i + 1];
		if (!strcmp(argv[i], "--mail"))
			parse_mail(argv[i + 1]);
	}
}

static int listener(const char *addr, int port, int backlog)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, addr, &at.sin_addr);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (options.workers)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, backlog))
		fail("listen");
	return fd;
}

// booking ADDRESS PORT BACKLOG [OPTION VALUE]...
int main(int argc, char **argv)
{
	int on = 1, fd, conn;

	if (argc < 4)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	parse(argc, argv);
	for (long n = 1; n < options.workers; n++)
		if (fork() == 0)
			break;
	for (long n = 0; n < options.pool; n++)
		if (start_thread(wait_for_work, NULL))
			fail("thread");
	for (long n = 0; n < options.threads; n++) {
		char *name;

		if (asprintf(&name, "fares-%ld", n) < 0 || start_thread(work, name))
			fail("thread");
	}
	fd = listener(argv[1], atoi(argv[2]), atoi(argv[3]));
	for (;;) {
		conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		if (conn < 0)
			continue;
		setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		if (options.threads)
			enqueue(conn);
		else if (start_thread(serve, (void *)(long)conn))
			close(conn); // nobody is there to answer
	}
}
