/* hostcuda: work of host threads on the modelled clock.
 *
 * Threads of one kind are a pool. What a pool does is a list of tasks, in the order in which they
 * were posted, and the model gives each to the thread that is free first: so it makes no difference
 * which thread of this computer really did it, when, and on how many processors. A task's times are
 * computed when somebody asks for them: the thread that posts waits for its tasks sooner or later,
 * and the simulation never runs ahead of that thread. */
#include <algorithm>

#include "hostcuda_internal.h"

namespace hc {

struct Task {
    OpP event;                  /* its work must have ended ... */
    std::weak_ptr<Task> before; /* ... and this task */
    bool waits = false;         /* for either of them, so when it was posted makes no difference */
    bool callers = false;       /* done by the thread that awaits it */
    double posted = 0;
    double until = 0;                 /* it ends no sooner */
    double work = 0, in = 0, out = 0; /* ns said; bytes copied into slots and out of them */
    std::vector<double *> tell;       /* who wants to know its end */
    bool known = false;               /* it has really been done, so these are whole */
    bool timed = false;
    double begin = 0, end = 0;
    bool asked = false;
    Steady::time_point since; /* when somebody first asked for it and could not be told */
};

namespace {

struct Workers {
    unsigned sharing = 1;        /* threads that copy at once, of all pools of a run */
    std::vector<double> free_at; /* of each thread */
    double last_begin = 0;
    std::map<size_t, TaskP> tasks;
    std::deque<TaskP> untimed;
};

enum {
    KEPT = 1 << 16 /* tasks of a pool whose times can be asked for */
};

std::map<const void *, Workers> &pools() {
    static std::map<const void *, Workers> *all = new std::map<const void *, Workers>;
    return *all;
}

TaskP task_of(const void *pool, size_t number) {
    const auto p = pools().find(pool);
    if (p == pools().end()) return TaskP();
    const auto t = p->second.tasks.find(number);
    return t == p->second.tasks.end() ? TaskP() : t->second;
}

/* Copying threads share the host memory's rate. */
double copy_ns(double bytes, double alone, double memory, unsigned sharing) {
    return bytes > 0 ? bytes / std::min(alone, memory / std::max(1u, sharing)) : 0;
}

double length_of(const Task &t, unsigned sharing) {
    const hostcuda_profile_t &p = current().profile;
    return t.work + copy_ns(t.in, p.host_fill, p.host_memory, sharing) +
           copy_ns(t.out, p.host_drain, p.host_memory, sharing);
}

/* When what it waits for has ended. */
double ready_of(Lock &lock, const Task &t) {
    double ready = t.waits ? 0 : t.posted;
    if (t.event) {
        run_model(lock, NEVER, t.event.get(), std::chrono::milliseconds(1000), true);
        ready = std::max(ready, t.event->epoch == state().epoch ? t.event->seen : 0);
    }
    if (const TaskP before = t.before.lock()) ready = std::max(ready, before->end);
    return ready;
}

/* For a limited time, since a task may wait for the thread that is in here. */
void wait_until_known(Lock &lock, const Task &t) {
    const auto began = Steady::now();
    while (!t.known && Steady::now() - began < std::chrono::milliseconds(200))
        lock.wait_for(state().changed, std::chrono::milliseconds(1));
}

void set_timed(Task &t) {
    t.timed = true;
    for (double *end : t.tell) *end = t.end;
    t.tell.clear();
}

/* Of a task that the awaiting thread does: it begins when that thread awaits it. */
void time_callers(Lock &lock, const void *pool, Task &t) {
    wait_until_known(lock, t);
    t.begin = std::max(ready_of(lock, t), clock_of_thread());
    t.end = std::max(t.until, t.begin + length_of(t, pools()[pool].sharing));
    set_timed(t);
}

/* Computes the times of the oldest task that has none, which must have been done. */
void time_next(Lock &lock, const void *pool) {
    const TaskP t = pools()[pool].untimed.front();
    wait_until_known(lock, *t);
    const double ready = ready_of(lock, *t);
    Workers &p = pools()[pool];
    if (p.untimed.empty() || p.untimed.front() != t) return; /* begun anew while the lock was out */
    const auto thread = std::min_element(p.free_at.begin(), p.free_at.end());
    const double could = std::max(ready, p.last_begin);
    t->begin = std::max(could, *thread);
    if (*thread < could) t->begin += current().profile.host_wake; /* it had parked */
    t->end = std::max(t->until, t->begin + length_of(*t, p.sharing));
    set_timed(*t);
    *thread = t->end;
    p.last_begin = t->begin;
    p.untimed.pop_front();
}

/* Returns whether its times are known now. */
bool time_task(Lock &lock, const void *pool, const TaskP &t) {
    if (t->callers && !t->timed) time_callers(lock, pool, *t);
    while (!t->timed && pools().count(pool) && !pools()[pool].untimed.empty())
        time_next(lock, pool);
    return t->timed;
}

/* Whether it would begin by this thread's clock: if so its length is needed, if not it has not
 * ended. Runs the model no further than that clock. */
bool could_begin(Lock &lock, const void *pool, const Task &t) {
    const double now = clock_of_thread();
    run_model(lock, now, nullptr, std::chrono::milliseconds(100), false);
    for (const TaskP &o : pools()[pool].untimed) {
        if (o->event && (o->event->model != Model::DONE || o->event->seen > now)) return false;
        if (o.get() == &t) break;
    }
    return true;
}

/* A task may wait for the thread that asks whether it is done. */
bool is_patient(Task &t) {
    if (!t.asked) t.since = Steady::now();
    t.asked = true;
    return Steady::now() - t.since < std::chrono::milliseconds(100);
}

} /* namespace */

void add_work(Task &task, double ns) { task.work += ns; }

void forget_tasks() { pools().clear(); }

} /* namespace hc */

using namespace hc;

extern "C" {

void hostcuda_pool_begin(const void *pool, unsigned threads, unsigned sharing) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    Workers &p = pools()[pool];
    p = Workers();
    p.sharing = sharing;
    p.free_at.assign(threads, 0);
}

void hostcuda_pool_end(const void *pool) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    pools().erase(pool);
}

void hostcuda_task_post(const void *pool, size_t number, cudaEvent_t event, const void *before,
                        size_t before_number, int callers) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    const auto at = pools().find(pool);
    if (at == pools().end()) return;
    Workers &p = at->second;
    const TaskP t = std::make_shared<Task>();
    const EventP e = find(state().events, event);
    if (e) t->event = e->record;
    if (before) t->before = task_of(before, before_number);
    t->waits = event || before;
    t->posted = clock_of_thread();
    t->callers = callers || p.free_at.empty();
    p.tasks[number] = t;
    if (!t->callers) p.untimed.push_back(t);
    if (p.tasks.size() > KEPT && p.tasks.begin()->second->timed) p.tasks.erase(p.tasks.begin());
}

void hostcuda_task_begin(const void *pool, size_t number) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    self.task = task_of(pool, number);
}

void hostcuda_task_end(void) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (!self.task) return;
    self.task->known = true;
    self.task.reset();
    state().changed.notify_all();
}

void hostcuda_task_await(const void *pool, size_t number) {
    const Hidden hidden;
    Lock lock(state().mutex);
    const TaskP t = task_of(pool, number);
    if (!t || !time_task(lock, pool, t)) return;
    clock_advance(std::max(0.0, t->end - clock_of_thread()) + current().profile.host_task);
}

int hostcuda_task_is_done(const void *pool, size_t number) {
    const Hidden hidden;
    Lock lock(state().mutex);
    const TaskP t = task_of(pool, number);
    if (!t) return 1;
    if (!t->timed && !t->callers) {
        if (!could_begin(lock, pool, *t)) return 0;
        for (const TaskP &o : pools()[pool].untimed) {
            if (!o->known) return is_patient(*t) ? -1 : 0;
            if (o == t) break;
        }
        (void)time_task(lock, pool, t);
    }
    return t->timed ? t->end <= clock_of_thread() : t->known;
}

int hostcuda_task_times(const void *pool, size_t number, double *begin_ns, double *end_ns) {
    const Hidden hidden;
    Lock lock(state().mutex);
    const TaskP t = task_of(pool, number);
    if (!t || !t->known || !time_task(lock, pool, t)) return 0;
    *begin_ns = t->begin;
    *end_ns = t->end;
    return 1;
}

void hostcuda_host_copy(size_t bytes, int out) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    const hostcuda_profile_t &p = current().profile;
    const double n = static_cast<double>(bytes);
    if (self.task && out)
        self.task->out += n;
    else if (self.task)
        self.task->in += n;
    else if (self.in_host)
        self.host_ns += copy_ns(n, out ? p.host_drain : p.host_fill, p.host_memory, 1);
    else
        clock_advance(copy_ns(n, out ? p.host_drain : p.host_fill, p.host_memory, 1));
}

void hostcuda_host_until(double ns) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (self.task)
        self.task->until = std::max(self.task->until, ns);
    else if (!self.unmodelled && !self.in_host)
        clock_advance(std::max(0.0, ns - clock_of_thread()));
}

void hostcuda_when_done(double *ns) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (self.task)
        self.task->tell.push_back(ns);
    else
        *ns = clock_of_thread();
}

void hostcuda_thread_started(void) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (!self.unmodelled && !self.in_host) clock_advance(current().profile.host_start);
}

int hostcuda_unmodelled(int on) {
    const int before = self.unmodelled;
    self.unmodelled = on != 0;
    return before;
}

void hostcuda_catch_up(void) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    if (!self.unmodelled && !self.in_host)
        clock_advance(std::max(0.0, state().latest - clock_of_thread()));
}

} /* extern "C" */
