/* Brings the loopback interface of the network that it is started in up, or takes it down: `lo up`,
 * `lo down`. What `ip link set lo up` does, where there is no `ip`. */

#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
    struct ifreq request = {.ifr_name = "lo"};
    int any = socket(AF_INET, SOCK_DGRAM, 0);

    if (argc != 2 || ioctl(any, SIOCGIFFLAGS, &request) != 0) {
        perror("lo");
        return 1;
    }
    if (strcmp(argv[1], "up") == 0)
        request.ifr_flags |= IFF_UP;
    else
        request.ifr_flags &= ~IFF_UP;
    if (ioctl(any, SIOCSIFFLAGS, &request) != 0) {
        perror("lo");
        return 1;
    }
    return 0;
}
