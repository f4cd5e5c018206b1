/* hostcuda: stream capture and graphs. */
#include <algorithm>

#include "hostcuda_internal.h"

namespace hc {

/* ---- capture --------------------------------------------------------------------------------- */

/* Adds an operation to the graph that its stream captures. */
static void capture_op(Stream &s, const OpP &op) {
    Graph &g = *s.capture->graph;
    Node n;
    n.handle = new_handle<cudaGraphNode_t>();
    n.shape = op;
    n.deps = s.capture_deps;
    for (size_t d : n.deps) g.nodes[d].leaf = false;
    g.nodes.push_back(n);
    s.capture_deps.assign(1, g.nodes.size() - 1);
}

/* A capture that the legacy stream would have to wait for: of a blocking stream. */
static CaptureP capture_in_the_way(const Stream &s) {
    for (const auto &weak : state().capturing) {
        const CaptureP c = weak.lock();
        if (c && is_legacy(s) && is_blocking(*c->origin) && c->origin->device == s.device) return c;
    }
    return CaptureP();
}

/* While a blocking stream captures, work on the legacy stream would have to wait for work that does
 * not run: it is refused. */
static cudaError_t check_implicit(const Stream &s) {
    const CaptureP c = capture_in_the_way(s);
    return c ? invalidate(*c, cudaErrorStreamCaptureImplicit) : cudaSuccess;
}

cudaError_t submit_or_capture(const StreamP &s, const OpP &op) {
    if (s->capture) {
        if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
        capture_op(*s, op);
        return cudaSuccess;
    }
    const cudaError_t e = check_implicit(*s);
    if (e == cudaSuccess) submit(s, op);
    return e;
}

} /* namespace hc */

using namespace hc;

extern "C" {

/* ---- capture and graphs ---------------------------------------------------------------------- */

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    ENTER(PLAIN);
    REFUSE_IF(!mode || static_cast<int>(*mode) < 0 || *mode > cudaStreamCaptureModeRelaxed,
              cudaErrorInvalidValue);
    std::swap(*mode, self.mode);
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(static_cast<int>(mode) < 0 || mode > cudaStreamCaptureModeRelaxed,
              cudaErrorInvalidValue);
    REFUSE_IF(is_legacy(*s), cudaErrorStreamCaptureUnsupported);
    REFUSE_IF(s->capture, cudaErrorIllegalState);
    const CaptureP c = std::make_shared<Capture>();
    c->id = ++state().captures;
    c->graph = std::make_shared<Graph>();
    c->graph->device = s->device;
    c->handle = new_handle<cudaGraph_t>();
    c->origin = s;
    c->mode = mode;
    c->thread = thread_key();
    s->capture = c;
    s->capture_deps.clear();
    state().capturing.push_back(c);
    return call.done(cudaSuccess);
}

/* Whether the last operations of the first stream come after all others of the capture. */
static bool all_joined(const Capture &c) {
    const std::vector<size_t> &deps = c.origin->capture_deps;
    for (size_t i = 0; i < c.graph->nodes.size(); ++i)
        if (c.graph->nodes[i].leaf && std::find(deps.begin(), deps.end(), i) == deps.end())
            return false;
    return true;
}

static void leave_capture(const CaptureP &c) {
    for (const auto &weak : c->joined)
        if (const StreamP s = weak.lock()) s->capture.reset();
    c->origin->capture.reset();
    c->origin.reset();
    auto &list = state().capturing;
    for (size_t i = 0; i < list.size();) {
        const CaptureP other = list[i].lock();
        if (!other || other == c)
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        else
            ++i;
    }
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out) {
    Call call(__func__, PLAIN);
    const StreamP s = find_stream(handle);
    if (call.refused != cudaSuccess) { /* an injected fault, too, ends the capture */
        const CaptureP cut = s && !self.in_host ? s->capture : CaptureP();
        if (cut && cut->origin == s) leave_capture(cut);
        return call.done(cudaSuccess);
    }
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!out, cudaErrorInvalidValue);
    *out = nullptr;
    REFUSE_IF(!s->capture, cudaErrorIllegalState);
    const CaptureP c = s->capture;
    if (c->origin != s) return call.done(invalidate(*c, cudaErrorStreamCaptureUnmatched));
    REFUSE_IF(c->mode != cudaStreamCaptureModeRelaxed && c->thread != thread_key(),
              cudaErrorStreamCaptureWrongThread);
    const bool joined = all_joined(*c);
    leave_capture(c);
    REFUSE_IF(c->invalid, cudaErrorStreamCaptureInvalidated);
    REFUSE_IF(!joined, cudaErrorStreamCaptureUnjoined);
    *out = c->handle;
    put(state().graphs, *out, c->graph);
    return call.done(cudaSuccess);
}

static cudaStreamCaptureStatus status_of(const Stream &s) {
    if (!s.capture) return cudaStreamCaptureStatusNone;
    return s.capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status) {
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!status, cudaErrorInvalidValue);
    REFUSE_IF(capture_in_the_way(*s), cudaErrorStreamCaptureImplicit); /* which goes on */
    *status = status_of(*s);
    return call.done(cudaSuccess);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges,
                                     size_t *count) {
    ENTER(PLAIN);
    const StreamP s = find_stream(handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!status, cudaErrorInvalidValue);
    *status = status_of(*s);
    REFUSE_IF(*status != cudaStreamCaptureStatusActive, cudaSuccess);
    s->reported_deps.clear();
    for (size_t d : s->capture_deps) s->reported_deps.push_back(s->capture->graph->nodes[d].handle);
    if (id) *id = s->capture->id;
    if (graph) *graph = s->capture->handle;
    if (deps) *deps = s->reported_deps.data();
    if (edges) *edges = nullptr;
    if (count) *count = s->reported_deps.size();
    return call.done(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t handle,
                                 unsigned long long flags) {
    ENTER(PLAIN);
    const GraphP g = find(state().graphs, handle);
    REFUSE_IF(!out || !g || flags != 0, cudaErrorInvalidValue);
    *out = new_handle<cudaGraphExec_t>();
    put(state().execs, *out, std::make_shared<Graph>(*g));
    return call.done(cudaSuccess);
}

/* The one name that has the same meaning in every version from 11.4 on. */
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t handle,
                                          unsigned long long flags) {
    ENTER(PLAIN);
    const GraphP g = find(state().graphs, handle);
    REFUSE_IF(!out || !g || flags != 0, cudaErrorInvalidValue);
    *out = new_handle<cudaGraphExec_t>();
    put(state().execs, *out, std::make_shared<Graph>(*g));
    return call.done(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t stream) {
    ENTER(PLAIN, &P::call_graph);
    REFUSE_IF(!find_stream(stream), cudaErrorInvalidResourceHandle);
    return call.done(find(state().execs, handle) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *nodes, size_t *count) {
    ENTER(PLAIN);
    const GraphP g = find(state().graphs, handle);
    REFUSE_IF(!g || !count, cudaErrorInvalidValue);
    const size_t total = g->nodes.size();
    for (size_t i = 0; nodes && i < *count; ++i)
        nodes[i] = i < total ? g->nodes[i].handle : nullptr;
    *count = nodes ? std::min(*count, total) : total;
    return call.done(cudaSuccess);
}

/* What a node of a graph that is not destroyed was asked for, or NULL. */
static std::shared_ptr<NodeParams> node_params(cudaGraphNode_t handle) {
    for (const auto &entry : state().graphs) {
        for (const Node &n : entry.second->nodes) {
            if (n.handle != handle) continue;
            if (n.shape->params) return n.shape->params;
            const auto other = std::make_shared<NodeParams>();
            if (n.shape->host) other->type = cudaGraphNodeTypeHost;
            return other;
        }
    }
    return nullptr;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType *type) {
    ENTER(PLAIN);
    const auto params = node_params(node);
    REFUSE_IF(!params || !type, cudaErrorInvalidValue);
    *type = params->type;
    return call.done(cudaSuccess);
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams *out) {
    ENTER(PLAIN);
    const auto params = node_params(node);
    REFUSE_IF(!params || !out || params->type != cudaGraphNodeTypeKernel, cudaErrorInvalidValue);
    *out = params->kernel;
    return call.done(cudaSuccess);
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms *out) {
    ENTER(PLAIN);
    const auto params = node_params(node);
    REFUSE_IF(!params || !out || params->type != cudaGraphNodeTypeMemcpy, cudaErrorInvalidValue);
    *out = params->copy;
    return call.done(cudaSuccess);
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams *out) {
    ENTER(PLAIN);
    const auto params = node_params(node);
    REFUSE_IF(!params || !out || params->type != cudaGraphNodeTypeMemset, cudaErrorInvalidValue);
    *out = params->set;
    return call.done(cudaSuccess);
}

/* Runs a node of a launch on the stream's thread; for a host function the model gets the time. */
static cudaError_t run_node(Op &node) {
    if (node.host) {
        const Hidden hidden;
        const Lock lock(state().mutex);
        state().running_hosts[&node] = Steady::now();
        self.host_ns = 0;
    }
    const cudaError_t e = node.fail != cudaSuccess ? node.fail : node.work();
    if (node.host) {
        const Hidden hidden;
        const Lock lock(state().mutex);
        state().running_hosts.erase(&node);
        resolve(node, self.host_ns);
    }
    return e;
}

/* The nodes run on the stream's thread in the order of their capture; in the model they run by
 * their dependencies. */
static void launch_graph(const StreamP &s, Graph &g) {
    const OpP start = new_op(*s, HOSTCUDA_OTHER), end = new_op(*s, HOSTCUDA_OTHER);
    add_legacy_deps(*s, end->deps);
    if (g.last_launch) end->deps.push_back(g.last_launch);
    std::vector<OpP> before = end->deps, leaves(1, start), *const parts = &end->parts;
    if (s->tail) before.push_back(s->tail);
    stamp(start);
    model_add(start, before);
    for (const Node &n : g.nodes) {
        const OpP op = std::make_shared<Op>(*n.shape);
        op->stream = s->id;
        op->queued = false;
        if (op->fail == cudaSuccess) op->fail = injected_async(op->kind);
        if (op->fail != cudaSuccess) device(op->device).doomed = end;
        std::vector<OpP> after(1, start);
        for (size_t d : n.deps) after.push_back((*parts)[d]);
        stamp(op);
        model_add(op, after);
        if (n.leaf) leaves.push_back(op);
        parts->push_back(op);
    }
    Op *const self_op = end.get();
    end->work = [self_op] {
        cudaError_t e = cudaSuccess;
        for (size_t i = 0; i < self_op->parts.size() && e == cudaSuccess; ++i)
            e = run_node(*self_op->parts[i]);
        return e;
    };
    stamp(end);
    enqueue(s, end, leaves);
    g.last_launch = end;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
    ENTER(PLAIN, &P::call_graph);
    const StreamP s = find_stream(stream);
    const GraphP g = find(state().execs, handle);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!g, cudaErrorInvalidValue);
    REFUSE_IF(s->device != g->device, cudaErrorInvalidResourceHandle);
    if (s->capture) return call.done(invalidate(*s->capture, cudaErrorStreamCaptureUnsupported));
    const cudaError_t e = check_implicit(*s);
    REFUSE_IF(e != cudaSuccess, e);
    clock_advance(current().profile.call_graph_node * static_cast<double>(g->nodes.size()));
    launch_graph(s, *g);
    return call.done(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
    ENTER(RELEASE);
    return call.done(take(state().graphs, handle) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
    ENTER(RELEASE);
    return call.done(take(state().execs, handle) ? cudaSuccess : cudaErrorInvalidValue);
}

} /* extern "C" */
