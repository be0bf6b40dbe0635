/* A host's clock that a test moves, for every process that this is preloaded into: see clock.rs.
 *
 * The file that TEST_CLOCK names holds by how many seconds it is off, as eight characters that are
 * replaced in place. Only the time of day is moved. What measures spans is left alone, as it is when
 * somebody sets a real clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile uint64_t *off;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("TEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *off, PROT_READ, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED) {
		fputs("TEST_CLOCK names no clock\n", stderr);
		abort();
	}
	close(fd);
	off = page;
}

static long seconds_off(void)
{
	char text[sizeof *off + 1] = "";
	uint64_t word = off ? *off : 0;

	memcpy(text, &word, sizeof word);
	return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int result = syscall(SYS_clock_gettime, clock, now);

	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += seconds_off();
	return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	int result = syscall(SYS_gettimeofday, now, zone);

	if (result == 0)
		now->tv_sec += seconds_off();
	return result;
}

time_t time(time_t *now)
{
	struct timespec read;

	clock_gettime(CLOCK_REALTIME, &read);
	if (now)
		*now = read.tv_sec;
	return read.tv_sec;
}
