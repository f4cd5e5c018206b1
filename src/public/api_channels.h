/* ---- 12 >>channels -------------------------------------------------------------------------
   Values handed from one stream to another without the host waiting. */
/* A queue of values between two streams, in device memory. Members are private. */
typedef struct spipe_channel {
    size_t bytes, stride, capacity, num_sent, num_received;
    unsigned char *device_memory;
    cudaEvent_t *full, *empty; /* one pair per value */
    spipe_priv_sync_t *sync;
    spipe_priv_owner_t owner; /* must be last */
} spipe_channel_t;

/*  spipe_channel_create, spipe_channel_send, spipe_channel_recv, spipe_channel_destroy -- hand
    values from one stream to another, first in first out, without the host waiting.

    c          out/in  of the device that is current at create; must not move.
    bytes      bytes   size of one value, 1 or more.
    capacity   in      how many values may be sent but not received yet, 1 or more.
    stream     in      of c's device. send: value is read in this stream's order. recv: work queued
                       on it after the call sees the value.
    value      in      send: device (or pinned host) memory to read.
    into       out     recv: device (or pinned host) memory to write.
    Returns    cudaSuccess; send: SPIPE_CHANNEL_FULL (receive first); recv: SPIPE_CHANNEL_EMPTY
               (send first); cudaErrorInvalidValue; cudaErrorNotPermitted (destroy: another call is
               under way); any error of the copy.
    Blocks     no. destroy waits for the device.
    Threads    send, recv: any. create, destroy: one.   Callback  no.   Capture  no.
    Allocates  create: capacity values of device memory and 2 x capacity events, until destroy. */
SPIPE_API cudaError_t spipe_channel_create(spipe_channel_t *c, size_t bytes, size_t capacity);
SPIPE_API cudaError_t spipe_channel_send(spipe_channel_t *c, cudaStream_t stream,
                                         const void *value);
SPIPE_API cudaError_t spipe_channel_recv(spipe_channel_t *c, cudaStream_t stream, void *into);
SPIPE_API cudaError_t spipe_channel_destroy(spipe_channel_t *c);
