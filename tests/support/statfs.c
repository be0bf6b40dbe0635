/* A file system that says it is of the type that TEST_STATFS names, in hexadecimal, for every
 * process that this is preloaded into. Nothing else about it changes. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

int statfs(const char *path, struct statfs *found)
{
	const char *type = getenv("TEST_STATFS");
	int result = syscall(SYS_statfs, path, found);

	if (result == 0 && type)
		found->f_type = strtol(type, NULL, 16);
	return result;
}

int statfs64(const char *path, struct statfs64 *found)
{
	return statfs(path, (struct statfs *)found);
}
