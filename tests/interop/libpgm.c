/*
 * A sender and a receiver on libpgm (OpenPGM), for the tests of interoperation and as a peer in
 * compare/wire.py.
 *
 *   libpgm send ADDRESS GROUP PORT RATE PGMCC FILE BYTES PAUSE_MS
 *   libpgm recv ADDRESS GROUP PORT RATE PGMCC FILE BYTES 0
 *
 * send: the file in messages of BYTES, after the first one a pause, at RATE bytes a second; then
 * it answers NAKs until standard input ends or it is killed. recv: appends payload to the file
 * until it has BYTES, and then makes FILE.done. RATE also decides the size of the windows. PGMCC
 * is 1 to turn on pgmcc.
 *
 * Build: cc libpgm.c $(pkg-config --cflags --libs openpgm-5.3)
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
/* Behind poll.h: it declares pgm_poll_info only there. */
#include <pgm/pgm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MTU = 1500, PAYLOAD_MAX = 1428 };

static void fail(const char *what, pgm_error_t *error)
{
    fprintf(stderr, "libpgm: %s: %s\n", what, error && error->message ? error->message : "failed");
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void set(pgm_sock_t *sock, int option, int value)
{
    if (!pgm_setsockopt(sock, IPPROTO_PGM, option, &value, sizeof value)) {
        fprintf(stderr, "libpgm: option 0x%x = %d refused\n", option, value);
        exit(1);
    }
}

/* Windows hold two seconds of data, between 1000 packets and 64 K of them. */
static int window(long rate)
{
    long packets = 2 * rate / PAYLOAD_MAX;
    return packets < 1000 ? 1000 : packets > 65536 ? 65536 : (int)packets;
}

static pgm_sock_t *open_socket(const char *address, const char *group, int port, long rate,
                               int pgmcc, int sending)
{
    pgm_error_t *error = NULL;
    pgm_sock_t *sock = NULL;
    struct pgm_addrinfo_t *addresses = NULL;
    char network[128];
    snprintf(network, sizeof network, "%s;%s", address, group);
    if (!pgm_getaddrinfo(network, NULL, &addresses, &error)) fail(network, error);
    if (!pgm_socket(&sock, AF_INET, SOCK_SEQPACKET, IPPROTO_UDP, &error)) fail("socket", error);
    /* libpgm listens on the multicast port alone: both must be the same. */
    set(sock, PGM_UDP_ENCAP_UCAST_PORT, port);
    set(sock, PGM_UDP_ENCAP_MCAST_PORT, port);
    set(sock, PGM_IP_ROUTER_ALERT, 0);
    set(sock, PGM_MTU, MTU);
    int buffer = 4 << 20;
    pgm_setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    pgm_setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    if (sending) {
        int heartbeat[] = {100000, 100000, 100000, 200000, 400000, 800000, 1600000};
        if (!pgmcc) set(sock, PGM_SEND_ONLY, 1);
        set(sock, PGM_TXW_SQNS, window(rate));
        set(sock, PGM_TXW_MAX_RTE, (int)rate);
        set(sock, PGM_AMBIENT_SPM, 1000000);
        if (!pgm_setsockopt(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, heartbeat, sizeof heartbeat))
            fail("heartbeats", NULL);
    } else {
        set(sock, PGM_RECV_ONLY, 1);
        set(sock, PGM_PASSIVE, 0);
    }
    if (!sending || pgmcc) {
        set(sock, PGM_RXW_SQNS, window(rate));
        set(sock, PGM_PEER_EXPIRY, 300000000);
        set(sock, PGM_SPMR_EXPIRY, 250000);
        set(sock, PGM_NAK_BO_IVL, 20000);
        set(sock, PGM_NAK_RPT_IVL, 200000);
        set(sock, PGM_NAK_RDATA_IVL, 200000);
        set(sock, PGM_NAK_DATA_RETRIES, 50);
        set(sock, PGM_NAK_NCF_RETRIES, 50);
    }
    if (pgmcc) {
        struct pgm_pgmccinfo_t info = {.ack_bo_ivl = 50000, .ack_c = 75, .ack_c_p = 500};
        if (!pgm_setsockopt(sock, IPPROTO_PGM, PGM_USE_PGMCC, &info, sizeof info))
            fail("pgmcc", NULL);
    }

    struct pgm_sockaddr_t here;
    memset(&here, 0, sizeof here);
    here.sa_port = (uint16_t)port;
    here.sa_addr.sport = DEFAULT_DATA_SOURCE_PORT;
    /* Not of the host's name, which all namespaces share. */
    if (!pgm_gsi_create_from_data(&here.sa_addr.gsi, (const uint8_t *)address, strlen(address)))
        fail("gsi", NULL);
    struct pgm_interface_req_t via;
    memset(&via, 0, sizeof via);
    via.ir_interface = addresses->ai_recv_addrs[0].gsr_interface;
    memcpy(&via.ir_address, &addresses->ai_send_addrs[0].gsr_addr, sizeof via.ir_address);
    if (!pgm_bind3(sock, &here, sizeof here, &via, sizeof via, &via, sizeof via, &error))
        fail("bind", error);
    for (unsigned i = 0; i < addresses->ai_recv_addrs_len; i++)
        pgm_setsockopt(sock, IPPROTO_PGM, PGM_JOIN_GROUP, &addresses->ai_recv_addrs[i],
                       sizeof(struct group_req));
    pgm_setsockopt(sock, IPPROTO_PGM, PGM_SEND_GROUP, &addresses->ai_send_addrs[0],
                   sizeof(struct group_req));
    pgm_freeaddrinfo(addresses);
    set(sock, PGM_MULTICAST_LOOP, 0);
    set(sock, PGM_MULTICAST_HOPS, 8);
    set(sock, PGM_NOBLOCK, 1);
    if (!pgm_connect(sock, &error)) fail("connect", error);
    return sock;
}

/* How long the socket says that one may wait, in milliseconds; at most a tenth of a second. */
static int patience(pgm_sock_t *sock, int status)
{
    struct timeval left = {0, 100000};
    socklen_t size = sizeof left;
    if (status == PGM_IO_STATUS_TIMER_PENDING)
        pgm_getsockopt(sock, IPPROTO_PGM, PGM_TIME_REMAIN, &left, &size);
    else if (status == PGM_IO_STATUS_RATE_LIMITED)
        pgm_getsockopt(sock, IPPROTO_PGM, PGM_RATE_REMAIN, &left, &size);
    long ms = left.tv_sec * 1000 + left.tv_usec / 1000;
    return ms > 100 ? 100 : (int)ms;
}

static void wait_for(pgm_sock_t *sock, short events, int ms)
{
    struct pollfd fds[8];
    int count = 8;
    if (pgm_poll_info(sock, fds, &count, events) < 0) fail("poll", NULL);
    poll(fds, (nfds_t)count, ms);
}

/* Takes what has come from receivers: NAKs, ACKs, requests for SPMs. Returns the last status. */
static int serve(pgm_sock_t *sock)
{
    static char sink[65536];
    size_t length;
    int status;
    do {
        pgm_error_t *error = NULL;
        status = pgm_recv(sock, sink, sizeof sink, MSG_DONTWAIT, &length, &error);
        if (error) pgm_error_free(error);
    } while (status == PGM_IO_STATUS_NORMAL);
    return status;
}

static void serve_for(pgm_sock_t *sock, double seconds)
{
    double end = now() + seconds;
    while (now() < end) wait_for(sock, POLLIN, patience(sock, serve(sock)));
}

static void send_one(pgm_sock_t *sock, const char *message, size_t length)
{
    for (;;) {
        int status = pgm_send(sock, message, length, NULL);
        if (status == PGM_IO_STATUS_NORMAL) return;
        if (status == PGM_IO_STATUS_ERROR || status == PGM_IO_STATUS_EOF) fail("send", NULL);
        serve(sock);
        if (status == PGM_IO_STATUS_RATE_LIMITED) {
            struct timeval left = {0, 0};
            socklen_t size = sizeof left;
            pgm_getsockopt(sock, IPPROTO_PGM, PGM_RATE_REMAIN, &left, &size);
            usleep(left.tv_usec > 2000 ? 2000 : left.tv_usec < 50 ? 50 : (useconds_t)left.tv_usec);
        } else {
            wait_for(sock, status == PGM_IO_STATUS_CONGESTION ? POLLIN : POLLIN | POLLOUT, 5);
        }
    }
}

static void send_file(pgm_sock_t *sock, const char *path, size_t bytes, int pause_ms, int pgmcc)
{
    FILE *file = fopen(path, "rb");
    if (!file) { perror(path); exit(1); }
    /* pgm_send copies with aligned stores: it crashes unless the payload lies as its packet does,
     * 44 bytes behind a multiple of 16 with pgmcc's option and 32 without. */
    char *block = aligned_alloc(16, 4096);
    char *message = block + (pgmcc ? 4 : 0);
    serve_for(sock, 0.5);
    size_t length = fread(message, 1, bytes, file);
    for (unsigned long n = 0; length > 0; n++) {
        send_one(sock, message, length);
        /* With pgmcc the first ACK gives no token: all wait for a timeout of 3 s, and a second
         * message that is queued meanwhile would be asked for and repaired with a wrong checksum
         * for ever. */
        if (n == 0 && pause_ms > 0) serve_for(sock, pause_ms / 1e3);
        if (n % 16 == 0) serve(sock);
        length = fread(message, 1, bytes, file);
    }
    fclose(file);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    while (poll(&input, 1, 0) == 0 || read(0, &byte, 1) > 0) serve_for(sock, 0.05);
}

static int receive_file(pgm_sock_t *sock, const char *path, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file) { perror(path); return 1; }
    static char buffer[65536];
    size_t got = 0;
    while (got < bytes) {
        size_t length = 0;
        pgm_error_t *error = NULL;
        int status = pgm_recv(sock, buffer, sizeof buffer, MSG_DONTWAIT, &length, &error);
        if (status == PGM_IO_STATUS_NORMAL) {
            fwrite(buffer, 1, length, file);
            got += length;
        } else if (status == PGM_IO_STATUS_RESET) {
            fprintf(stderr, "libpgm: lost for ever after %zu bytes\n", got);
            return 1;
        } else if (status == PGM_IO_STATUS_ERROR) {
            fail("receive", error);
        } else {
            wait_for(sock, POLLIN, patience(sock, status));
        }
        if (error) pgm_error_free(error);
    }
    fclose(file);
    char done[4096];
    snprintf(done, sizeof done, "%s.done", path);
    file = fopen(done, "wb");
    if (file) fclose(file);
    /* Repairs that others have asked for must not meet a closed port. */
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    while (poll(&input, 1, 0) == 0 || read(0, &byte, 1) > 0) serve_for(sock, 0.05);
    return 0;
}

int main(int count, char **words)
{
    if (count != 10) {
        fprintf(stderr, "usage: libpgm send|recv ADDRESS GROUP PORT RATE PGMCC FILE BYTES PAUSE\n");
        return 2;
    }
    pgm_error_t *error = NULL;
    if (!pgm_init(&error)) fail("init", error);
    int sending = strcmp(words[1], "send") == 0;
    int pgmcc = atoi(words[6]);
    long rate = atol(words[5]);
    pgm_sock_t *sock = open_socket(words[2], words[3], atoi(words[4]), rate, pgmcc, sending);
    size_t bytes = strtoul(words[8], NULL, 10);
    if (!sending) return receive_file(sock, words[7], bytes);
    send_file(sock, words[7], bytes, atoi(words[9]), pgmcc);
    return 0;
}
