/*
 * ZeroMQ over PGM in UDP, for the tests of interoperation and as a peer in compare/wire.py.
 *
 *   zeromq send ADDRESS GROUP PORT KBIT_PER_S FILE BYTES PAUSE_MS
 *   zeromq recv ADDRESS GROUP PORT KBIT_PER_S FILE BYTES 0
 *
 * send: after the pause, the file in messages of BYTES, each behind its offset as 8 bytes; then it
 * waits until standard input ends or it is killed. recv: writes messages that follow one another to
 * the file until it has BYTES, and then makes FILE.done. A gap is a failure.
 *
 * Build: cc zeromq.c -lzmq
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

static void fail(const char *what)
{
    fprintf(stderr, "zeromq: %s: %s\n", what, zmq_strerror(zmq_errno()));
    exit(1);
}

static void set(void *socket, int option, int value)
{
    if (zmq_setsockopt(socket, option, &value, sizeof value) != 0) fail("option");
}

static void wait_for_end(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    do poll(&input, 1, -1);
    while (read(0, &byte, 1) > 0);
}

static int send_file(void *socket, const char *path, size_t bytes, int pause_ms)
{
    FILE *file = fopen(path, "rb");
    if (!file) { perror(path); return 1; }
    char *message = malloc(bytes + 8);
    uint64_t offset = 0;
    size_t length;
    usleep((useconds_t)pause_ms * 1000);
    while ((length = fread(message + 8, 1, bytes, file)) > 0) {
        memcpy(message, &offset, 8);
        if (zmq_send(socket, message, length + 8, 0) < 0) fail("send");
        offset += length;
    }
    wait_for_end();
    return 0;
}

static int receive_file(void *socket, const char *path, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file) { perror(path); return 1; }
    static char message[1 << 20];
    uint64_t got = 0;
    while (got < bytes) {
        int length = zmq_recv(socket, message, sizeof message, 0);
        if (length < 8) fail("receive");
        uint64_t offset;
        memcpy(&offset, message, 8);
        if (offset != got) {
            fprintf(stderr, "zeromq: offset %llu where %llu is next\n",
                    (unsigned long long)offset, (unsigned long long)got);
            return 1;
        }
        fwrite(message + 8, 1, (size_t)length - 8, file);
        got += (uint64_t)length - 8;
    }
    fclose(file);
    char done[4096];
    snprintf(done, sizeof done, "%s.done", path);
    file = fopen(done, "wb");
    if (file) fclose(file);
    wait_for_end();
    return 0;
}

int main(int count, char **words)
{
    if (count != 9) {
        fprintf(stderr, "usage: zeromq send|recv ADDRESS GROUP PORT KBIT_PER_S FILE BYTES PAUSE\n");
        return 2;
    }
    int sending = strcmp(words[1], "send") == 0;
    void *context = zmq_ctx_new();
    void *socket = zmq_socket(context, sending ? ZMQ_XPUB : ZMQ_SUB);
    if (!socket) fail("socket");
    /* The rate also sizes the windows: those of two seconds, or of ten where that is little. */
    int rate = atoi(words[5]);
    set(socket, ZMQ_RATE, rate);
    set(socket, ZMQ_RECOVERY_IVL, rate > 100000 ? 1000 : 10000);
    set(socket, ZMQ_LINGER, 0);
    set(socket, ZMQ_SNDBUF, 4 << 20);
    set(socket, ZMQ_RCVBUF, 4 << 20);
    if (sending) {
        /* Wait where a queue is full instead of dropping. */
        set(socket, ZMQ_XPUB_NODROP, 1);
    } else {
        set(socket, ZMQ_RCVHWM, 0);
        if (zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0) != 0) fail("subscribe");
    }
    char endpoint[128];
    snprintf(endpoint, sizeof endpoint, "epgm://%s;%s:%s", words[2], words[3], words[4]);
    if (zmq_connect(socket, endpoint) != 0) fail(endpoint);
    size_t bytes = strtoul(words[7], NULL, 10);
    if (sending) return send_file(socket, words[6], bytes, atoi(words[8]));
    return receive_file(socket, words[6], bytes);
}
