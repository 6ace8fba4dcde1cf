/*
 * A file over NORM (libnorm), as a peer in compare/wire.py.
 *
 *   norm send INTERFACE GROUP PORT MBIT_PER_S FILE RECEIVERS
 *   norm recv INTERFACE GROUP PORT ID FILE FOLDER
 *
 * send: to receivers with the ids 2 and up, until all have acknowledged the whole file; at a fixed
 * rate, or with NORM-CC where it is 0, or with NORM-CC and the library's own start where it is below 0.
 * recv: makes FILE.done when the file is whole, and stays.
 *
 * C++, because libnorm's header is. Build: c++ norm.cpp -lnorm
 */
#include <normApi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

enum { SOCKET_BUFFER = 4 << 20, BUFFER = 64 << 20, SEGMENT = 1400, BLOCK = 64 };

static int fail(const char *what)
{
    std::fprintf(stderr, "norm: %s failed\n", what);
    return 1;
}

static int send_file(NormInstanceHandle instance, NormSessionHandle session, double mbit_per_s,
                     const char *path, int receivers)
{
    /* A start that fits a fast local network; the defaults are for wide ones and are slower. */
    if (mbit_per_s >= 0) NormSetGrttEstimate(session, 0.005);
    if (mbit_per_s < 0) {
        NormSetCongestionControl(session, true);
    } else if (mbit_per_s > 0) {
        NormSetCongestionControl(session, false);
        NormSetTxRate(session, mbit_per_s * 1e6);
    } else {
        NormSetTxRate(session, 100e6);
        NormSetCongestionControl(session, true);
    }
    for (int id = 2; id < 2 + receivers; id++) NormAddAckingNode(session, (NormNodeId)id);
    if (!NormStartSender(session, 1, BUFFER, SEGMENT, BLOCK, 0)) return fail("start");
    NormSetTxSocketBuffer(session, SOCKET_BUFFER);
    NormObjectHandle object = NormFileEnqueue(session, path, "copy", 4);
    if (object == NORM_OBJECT_INVALID) return fail("the file");
    NormSetWatermark(session, object);
    NormEvent event;
    while (NormGetNextEvent(instance, &event)) {
        if (event.type != NORM_TX_WATERMARK_COMPLETED) continue;
        if (NormGetAckingStatus(session) == NORM_ACK_SUCCESS) return 0;
        NormResetWatermark(session);
    }
    return fail("events");
}

static int receive_file(NormInstanceHandle instance, NormSessionHandle session, const char *path,
                        const char *folder)
{
    if (!NormSetCacheDirectory(instance, folder)) return fail("the folder");
    if (!NormStartReceiver(session, BUFFER)) return fail("start");
    NormSetRxSocketBuffer(session, SOCKET_BUFFER);
    NormEvent event;
    while (NormGetNextEvent(instance, &event)) {
        if (event.type == NORM_RX_OBJECT_ABORTED) return fail("reception");
        if (event.type != NORM_RX_OBJECT_COMPLETED) continue;
        char name[4096];
        if (!NormFileGetName(event.object, name, sizeof name)) return fail("the name");
        if (std::rename(name, path) != 0) return fail("rename");
        if (FILE *done = std::fopen((std::string(path) + ".done").c_str(), "wb")) std::fclose(done);
    }
    return fail("events");
}

int main(int count, char **words)
{
    if (count != 8) {
        std::fprintf(stderr, "usage: norm send INTERFACE GROUP PORT MBIT_PER_S FILE RECEIVERS\n"
                             "       norm recv INTERFACE GROUP PORT ID FILE FOLDER\n");
        return 2;
    }
    bool sending = std::strcmp(words[1], "send") == 0;
    NormInstanceHandle instance = NormCreateInstance();
    NormNodeId id = sending ? 1 : (NormNodeId)std::atoi(words[5]);
    NormSessionHandle session =
        NormCreateSession(instance, words[3], (UINT16)std::atoi(words[4]), id);
    if (session == NORM_SESSION_INVALID) return fail("session");
    NormSetMulticastInterface(session, words[2]);
    if (sending)
        return send_file(instance, session, std::atof(words[5]), words[6], std::atoi(words[7]));
    return receive_file(instance, session, words[6], words[7]);
}
