/*
 * The bare limit of a machine, for compare/wire.py: multicast with nothing but a window.
 *
 *   limit send HERE GROUP PORT BYTES RECEIVERS FORCED FILE
 *   limit recv HERE GROUP PORT BYTES SENDER FORCED FILE
 *
 * At most one receive buffer of the slowest receiver is outstanding; datagrams leave in batches by UDP
 * segmentation offload and are read in batches by receive offload into memory that no program looks at;
 * acknowledgements are cumulative. No repair, no control of congestion: what carries files can come near and
 * not above. A gap is a failure. FORCED is 1 for socket buffers as large as those of `faircast`, else 0. With a
 * FILE other than `-` the sender reads what it sends, and receivers write what they read.
 *
 * Build: cc limit.c
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Bytes of a datagram: an Ethernet packet less the headers of IP, UDP and PGM. A batch fits into the 64 KB that
 * segmentation offload takes. Acknowledgements come several times a window, so that the sender need not stop. */
enum { PAYLOAD = 1456, BATCH = 44, BUFFERS = 32, BUFFER = 1 << 16, ACKS_PER_WINDOW = 8, RECEIVERS_MAX = 256 };
/* Milliseconds of silence before an acknowledgement is repeated, and before a measurement is given up. */
enum { REPEAT_MS = 50, SILENCE_MAX_MS = 10000 };
/* Buffers that `faircast` asks for. */
enum { RECEIVE_BUFFER = 8 << 20, SEND_BUFFER = 4 << 20 };
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

struct ack { uint64_t got, window; };

static void fail(const char *what)
{
    fprintf(stderr, "limit: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void set(int socket, int level, int option, int value)
{
    if (setsockopt(socket, level, option, &value, sizeof value) != 0) fail("option");
}

static struct sockaddr_in address(const char *text, int port)
{
    struct sockaddr_in made = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, text, &made.sin_addr) != 1) fail(text);
    return made;
}

static int open_socket(const char *here, int port, int forced)
{
    int made = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in to = address(here, port);
    if (made < 0) fail("socket");
    if (forced) {
        set(made, SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER);
        set(made, SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER);
    }
    if (bind(made, (struct sockaddr *)&to, sizeof to) != 0) fail("bind");
    return made;
}

/* Waits until the socket is ready. Returns 0 when time is up. */
static int ready(int socket, short events, int longest_ms)
{
    struct pollfd one = {.fd = socket, .events = events};
    return poll(&one, 1, longest_ms) > 0;
}

static int send_all(int argc, char **argv)
{
    if (argc != 9) return 2;
    int port = atoi(argv[4]), wanted = atoi(argv[6]), known = 0;
    uint64_t total = (strtoull(argv[5], NULL, 10) + PAYLOAD - 1) / PAYLOAD, sent = 0;
    int out = open_socket(argv[2], port + 1, atoi(argv[7]));
    struct sockaddr_in here = address(argv[2], 0), to = address(argv[3], port), from[RECEIVERS_MAX];
    struct ack acks[RECEIVERS_MAX];
    if (setsockopt(out, IPPROTO_IP, IP_MULTICAST_IF, &here.sin_addr, sizeof here.sin_addr) != 0) fail("interface");
    set(out, IPPROTO_IP, IP_MULTICAST_LOOP, 0);
    set(out, IPPROTO_UDP, UDP_SEGMENT, PAYLOAD);
    int file = strcmp(argv[8], "-") == 0 ? -1 : open(argv[8], O_RDONLY);
    static uint8_t batch[BATCH * PAYLOAD];
    for (;;) {
        uint64_t room = known < wanted ? 0 : UINT64_MAX, done = known < wanted ? 0 : UINT64_MAX;
        for (int i = 0; i < known; i++) {
            uint64_t end = acks[i].got + acks[i].window / PAYLOAD, left = end > sent ? end - sent : 0;
            room = left < room ? left : room;
            done = acks[i].got < done ? acks[i].got : done;
        }
        if (known == wanted && done == total) return 0;
        uint64_t count = total - sent < BATCH ? total - sent : BATCH;
        if (count == 0 || known < wanted || room < count) {
            struct sockaddr_in who;
            socklen_t len = sizeof who;
            struct ack ack;
            if (!ready(out, POLLIN, SILENCE_MAX_MS)) { errno = ETIME; fail("no receiver says anything"); }
            if (recvfrom(out, &ack, sizeof ack, 0, (struct sockaddr *)&who, &len) != sizeof ack) continue;
            int i = 0;
            while (i < known && from[i].sin_addr.s_addr != who.sin_addr.s_addr) i++;
            if (i == RECEIVERS_MAX) continue;
            if (i == known) { from[known++] = who; acks[i].got = 0; }
            if (be64toh(ack.got) > acks[i].got) acks[i].got = be64toh(ack.got);
            acks[i].window = be64toh(ack.window);
            continue;
        }
        /* At the end of the file what was there before is sent. */
        if (file >= 0 && read(file, batch, count * PAYLOAD) < 0) fail("read");
        for (uint64_t i = 0; i < count; i++) {
            uint64_t number = htobe64(sent + i);
            memcpy(batch + i * PAYLOAD, &number, sizeof number);
        }
        if (sendto(out, batch, count * PAYLOAD, 0, (struct sockaddr *)&to, sizeof to) >= 0) sent += count;
        else if (errno == EAGAIN) ready(out, POLLOUT, SILENCE_MAX_MS);
        else fail("send");
    }
}

static void acknowledge(int in, struct sockaddr_in *to, uint64_t got, uint64_t window)
{
    struct ack ack = {htobe64(got), htobe64(window)};
    /* A sender that is not there yet gets the next one, and one that has ended needs none. */
    if (sendto(in, &ack, sizeof ack, 0, (struct sockaddr *)to, sizeof *to) < 0 && errno != ECONNREFUSED) fail("ack");
}

static int receive_all(int argc, char **argv)
{
    if (argc != 9) return 2;
    int port = atoi(argv[4]), quiet_ms = 0, buffer = 0;
    uint64_t total = (strtoull(argv[5], NULL, 10) + PAYLOAD - 1) / PAYLOAD, next = 0, acknowledged = 0;
    int in = open_socket("0.0.0.0", port, atoi(argv[7]));
    struct ip_mreq group = {address(argv[3], 0).sin_addr, address(argv[2], 0).sin_addr};
    struct sockaddr_in sender = address(argv[6], port + 1);
    socklen_t len = sizeof buffer;
    if (setsockopt(in, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) != 0) fail("group");
    set(in, IPPROTO_UDP, UDP_GRO, 1);
    if (getsockopt(in, SOL_SOCKET, SO_RCVBUF, &buffer, &len) != 0) fail("buffer");
    /* The kernel counts each packet with its overhead, so it gives twice what it was asked for. */
    uint64_t window = buffer / 2, every = window / PAYLOAD / ACKS_PER_WINDOW;
    int file = strcmp(argv[8], "-") == 0 ? -1 : open(argv[8], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    static uint8_t bytes[BUFFERS][BUFFER];
    static struct { struct cmsghdr header; int stride; char room[64]; } said[BUFFERS];
    struct iovec parts[BUFFERS];
    struct mmsghdr messages[BUFFERS];
    while (next < total) {
        if (!ready(in, POLLIN, REPEAT_MS)) {
            if ((quiet_ms += REPEAT_MS) > SILENCE_MAX_MS) { errno = ETIME; fail("the rest does not come"); }
            acknowledge(in, &sender, next, window);
            continue;
        }
        for (int i = 0; i < BUFFERS; i++) {
            parts[i] = (struct iovec){bytes[i], BUFFER};
            messages[i].msg_hdr = (struct msghdr){
                .msg_iov = &parts[i], .msg_iovlen = 1, .msg_control = &said[i], .msg_controllen = sizeof said[i]};
        }
        int count = recvmmsg(in, messages, BUFFERS, MSG_DONTWAIT, NULL);
        if (count < 0 && errno != EAGAIN && errno != ECONNREFUSED) fail("receive");
        for (int i = 0; i < count; i++) {
            size_t length = messages[i].msg_len, stride = length;
            struct cmsghdr *head = CMSG_FIRSTHDR(&messages[i].msg_hdr);
            if (head && head->cmsg_level == IPPROTO_UDP && head->cmsg_type == UDP_GRO) {
                int value;
                memcpy(&value, CMSG_DATA(head), sizeof value);
                stride = value;
            }
            for (size_t at = 0; at + sizeof next <= length; at += stride, next++) {
                uint64_t number;
                memcpy(&number, bytes[i] + at, sizeof number);
                if (be64toh(number) != next) { errno = EPROTO; fail("a gap"); }
            }
            if (file >= 0 && write(file, bytes[i], length) != (ssize_t)length) fail("write");
        }
        quiet_ms = 0;
        if (next - acknowledged >= (every ? every : 1) || next == total) {
            acknowledged = next;
            acknowledge(in, &sender, next, window);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    int failed = argc < 2 ? 2 : strcmp(argv[1], "send") == 0 ? send_all(argc, argv) : receive_all(argc, argv);
    if (failed) fprintf(stderr, "usage: limit send|recv HERE GROUP PORT BYTES RECEIVERS|SENDER FORCED FILE\n");
    return failed;
}
