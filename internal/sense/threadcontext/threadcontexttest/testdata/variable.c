/* The thread-local pointer of OTEP 4947, in the program itself or in a library. */
#define _GNU_SOURCE
#include <stddef.h>

__attribute__((visibility("default"))) __thread void *otel_thread_ctx_v1;

#ifdef LARGE
/* More than glibc has room for next to the thread pointer for libraries that are opened. */
__attribute__((visibility("default"))) __thread char large[1 << 20];
#endif

/* Where this thread has it. */
void *volatile *context_slot(void)
{
	return (void *volatile *)&otel_thread_ctx_v1;
}
