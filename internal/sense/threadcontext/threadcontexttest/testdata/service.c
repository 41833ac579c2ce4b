/*
 * A service whose threads publish the span that they have in hand, as OTEP 4947 and 4719
 * have it. It serves HTTP/1.1, a connection a thread, and asks another service, which
 * speaks Redis, on a connection of each thread's own; it notes whose span each request and
 * each call was, and says so at the end of its input.
 *
 *	service PORT [LIBRARY]	PORT of the other service, 0 = none; the library has the variable
 *
 * GET /s… a span of its own, in a record of its own. GET /r… the same in a record that the
 * thread uses again and again. GET /e… in one that ends where memory ends, and says that
 * its attributes go on. GET /n… no span. GET /b… a pointer that leads nowhere.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

struct record {
	uint8_t trace[16];
	uint8_t span[8];
	uint8_t valid;
	uint8_t flags;
	uint16_t size;
	uint8_t attributes[64];
} __attribute__((packed, aligned(8)));

struct header {
	char signature[8];
	uint32_t version, size;
	uint64_t published;
	const void *payload;
};

#define fence() atomic_signal_fence(memory_order_seq_cst)
#define MOST 200000

static struct {
	const char *side;
	int port; /* of the client's end */
	int of; /* the same of the request for which a call was made; of a request its own */
	int seq;
	uint8_t trace[16], span[8];
	int has;
} notes[MOST];
static atomic_int noted;
static void *volatile *(*slot)(void);
static int other;

static void note(const char *side, int port, int of, int seq, const struct record *r)
{
	int i = atomic_fetch_add(&noted, 1);

	if (i >= MOST)
		abort();
	notes[i].side = side;
	notes[i].port = port;
	notes[i].of = of;
	notes[i].seq = seq;
	notes[i].has = r != NULL;
	if (r) {
		memcpy(notes[i].trace, r->trace, 16);
		memcpy(notes[i].span, r->span, 8);
	}
}

/* The attribute threadlocal.schema_version in the field attributes (2) of the payload. */
static uint8_t payload[128];

static uint32_t make_payload(void)
{
	static const char key[] = "threadlocal.schema_version", value[] = "tlsdesc_v1_dev";
	uint8_t *b = payload, *of, *any;

	*b++ = 2 << 3 | 2;
	of = b++;
	*b++ = 1 << 3 | 2;
	*b++ = sizeof(key) - 1;
	b = mempcpy(b, key, sizeof(key) - 1);
	*b++ = 2 << 3 | 2;
	any = b++;
	*b++ = 1 << 3 | 2;
	*b++ = sizeof(value) - 1;
	b = mempcpy(b, value, sizeof(value) - 1);
	*any = b - any - 1;
	*of = b - of - 1;
	return b - payload;
}

static void publish_process(void)
{
	int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
	struct header *h;

	if (fd < 0 || ftruncate(fd, 4096))
		abort();
	h = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (h == MAP_FAILED)
		abort();
	close(fd);
	madvise(h, 4096, MADV_DONTFORK);
	h->version = 2;
	h->size = make_payload();
	h->payload = payload;
	h->published = 1;
	atomic_thread_fence(memory_order_seq_cst);
	memcpy(h->signature, "OTEL_CTX", 8);
}

static void fill(struct record *r, const uint8_t *trace)
{
	if (trace)
		memcpy(r->trace, trace, 16);
	else if (getrandom(r->trace, 16, 0) != 16)
		abort();
	if (getrandom(r->span, 8, 0) != 8)
		abort();
	r->flags = 1;
	r->size = sizeof(r->attributes);
	memset(r->attributes, 0xff, sizeof(r->attributes));
}

static int port_of(int fd, int (*ask)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_in a;
	socklen_t size = sizeof(a);

	return ask(fd, (void *)&a, &size) ? 0 : ntohs(a.sin_port);
}

static int connect_other(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(other), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (fd < 0 || connect(fd, (void *)&to, sizeof(to)))
		abort();
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void call(int fd, int of, int seq, struct record *r)
{
	static const char ping[] = "*1\r\n$4\r\nPING\r\n";
	char b[64];

	note("called", port_of(fd, getsockname), of, seq, r);
	if (write(fd, ping, sizeof(ping) - 1) < 0 || read(fd, b, sizeof(b)) <= 0)
		abort();
}

static void *serve(void *arg)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	int fd = (intptr_t)arg, peer = port_of(fd, getpeername), calls = other ? connect_other() : -1, one = 1;
	void *volatile *mine = slot();
	struct record *again = calloc(1, sizeof(*again)), local;
	void *published = NULL;
	uint8_t *edge = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char b[4096];

	if (edge == MAP_FAILED || munmap(edge + 4096, 4096))
		abort();
	edge += 4096 - offsetof(struct record, attributes);

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (int seq = 1;; seq++) {
		struct record *r = NULL, *child = NULL;
		ssize_t n = read(fd, b, sizeof(b) - 1);

		if (n <= 0)
			break;
		switch (b[5]) {
		case 's':
			r = calloc(1, sizeof(*r));
			fill(r, NULL);
			r->valid = 1;
			published = r;
			break;
		case 'r':
			r = again;
			r->valid = 0;
			fence();
			fill(r, NULL);
			fence();
			r->valid = 1;
			published = r;
			break;
		case 'e':
			r = &local;
			fill(r, NULL);
			r->valid = 1;
			r->size = UINT16_MAX;
			memcpy(edge, r, offsetof(struct record, attributes));
			published = edge;
			break;
		case 'b':
			published = (void *)0x7fff00000008;
			break;
		default:
			published = NULL;
		}
		fence();
		*mine = published;
		fence();
		if (calls >= 0) {
			if (r) {
				child = calloc(1, sizeof(*child));
				fill(child, r->trace);
				child->valid = 1;
				fence();
				*mine = child;
				fence();
			}
			call(calls, peer, seq, child);
			fence();
			*mine = published;
			free(child);
		}
		note("served", peer, peer, seq, r);
		fence();
		if (write(fd, answer, sizeof(answer) - 1) < 0)
			break;
		fence();
		if (r == again)
			again->valid = 0;
		else
			*mine = NULL;
		fence();
		if (r != again && r != &local)
			free(r);
	}
	close(fd);
	if (calls >= 0)
		close(calls);
	return NULL;
}

static void *take(void *arg)
{
	for (;;) {
		int fd = accept((intptr_t)arg, NULL, NULL);
		pthread_t t;

		if (fd < 0 || pthread_create(&t, NULL, serve, (void *)(intptr_t)fd))
			abort();
		pthread_detach(t);
	}
}

#ifdef LINKED
void *volatile *context_slot(void);
#endif

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int l = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t t;
	char b[16];

	other = argc > 1 ? atoi(argv[1]) : 0;
#ifdef LINKED
	slot = context_slot;
#else
	void *library = dlopen(argv[2], RTLD_NOW);

	if (library)
		slot = (void *volatile *(*)(void))dlsym(library, "context_slot");
#endif
	if (!slot || l < 0 || bind(l, (void *)&at, sizeof(at)) || listen(l, 64))
		abort();
	publish_process();
	if (pthread_create(&t, NULL, take, (void *)(intptr_t)l))
		abort();
	printf("%d %p %p\n", port_of(l, getsockname), (void *)slot(), __builtin_thread_pointer());
	fflush(stdout);
	while (read(0, b, sizeof(b)) > 0)
		;
	for (int i = 0; i < noted; i++) {
		printf("%s %d %d %d ", notes[i].side, notes[i].port, notes[i].of, notes[i].seq);
		if (notes[i].has) {
			for (int k = 0; k < 16; k++)
				printf("%02x", notes[i].trace[k]);
			for (int k = 0; k < 8; k++)
				printf("%02x", notes[i].span[k]);
		} else {
			printf("-");
		}
		printf("\n");
	}
	return 0;
}
