/* A disk that a test lets go wrong, for every process that this is preloaded into: see disk.rs.
 *
 * The file that TEST_DISK names holds two numbers: what goes wrong now, and how often it has. Only
 * what SQLite writes is concerned: files whose names end as those of a database do. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum fault { NOTHING, NO_SPACE, WRITE_ERROR, SHORT_WRITE, SYNC_ERROR };

static struct disk {
	_Atomic unsigned fault;
	_Atomic unsigned fired;
} *disk;

/* The rest of what was cut short finds no space. */
static _Thread_local int cut;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("TEST_DISK");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *page = fd < 0 ? MAP_FAILED
			    : mmap(NULL, sizeof *disk, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED) {
		fputs("TEST_DISK names no disk\n", stderr);
		abort();
	}
	close(fd);
	disk = page;
}

static int ends_with(const char *path, const char *end)
{
	size_t length = strlen(path), of_end = strlen(end);

	return length >= of_end && strcmp(path + length - of_end, end) == 0;
}

/* What goes wrong with this file now. */
static enum fault fault_of(int fd)
{
	enum fault fault = disk ? atomic_load(&disk->fault) : NOTHING;
	char link[32], path[4096] = "";
	int error = errno;

	if (fault == NOTHING)
		return NOTHING;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof path - 1) < 0)
		path[0] = 0;
	errno = error;
	return ends_with(path, ".db") || ends_with(path, ".db-wal") ? fault : NOTHING;
}

static int fails(int error)
{
	atomic_fetch_add(&disk->fired, 1);
	errno = error;
	return -1;
}

/* How much may be written; -1: it fails. */
static ssize_t allowed(int fd, size_t size)
{
	enum fault fault = fault_of(fd);
	int was_cut = cut;

	cut = 0;
	if (fault == WRITE_ERROR)
		return fails(EIO);
	if (fault == NO_SPACE || (fault == SHORT_WRITE && (was_cut || size < 2)))
		return fails(ENOSPC);
	if (fault == SHORT_WRITE) {
		cut = 1;
		return size / 2;
	}
	return size;
}

ssize_t write(int fd, const void *bytes, size_t size)
{
	ssize_t most = allowed(fd, size);

	return most < 0 ? -1 : syscall(SYS_write, fd, bytes, most);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at)
{
	ssize_t most = allowed(fd, size);

	return most < 0 ? -1 : syscall(SYS_pwrite64, fd, bytes, most, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
	return pwrite64(fd, bytes, size, at);
}

int fsync(int fd)
{
	return fault_of(fd) == SYNC_ERROR ? fails(EIO) : syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	return fault_of(fd) == SYNC_ERROR ? fails(EIO) : syscall(SYS_fdatasync, fd);
}
