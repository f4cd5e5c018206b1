/* hostcuda: work of host threads on the modelled clock.
 *
 * The threads of a run are a pool of lanes. Its tasks are numbered by age, and the lane that is
 * free first does the oldest task that is ready then: so it makes no difference which thread of
 * this computer really did it, when, and on how many processors. Who has which task is computed
 * when somebody asks: the thread that posts waits for its tasks sooner or later, and the simulation
 * never runs ahead of that thread. */
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "hostcuda_internal.h"

namespace hc {

struct Task {
    OpP event;                     /* its work must have ended ... */
    std::weak_ptr<Task> before[2]; /* ... and these tasks */
    bool waits = false;            /* for any of them, so when it was posted makes no difference */
    bool callers = false;          /* done by the thread that awaits it */
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
    unsigned sharing = 1;        /* lanes that copy at once */
    std::vector<double> free_at; /* of each lane */
    double busy = 0;             /* ns of all tasks that were given to lanes */
    std::map<size_t, TaskP> tasks;
    std::map<size_t, TaskP> untimed; /* for the lanes, oldest first */
};

enum {
    KEPT = 1 << 16 /* tasks of a pool whose times can be asked for */
};

/* For what is really done, which may wait for the thread that waits here. */
const std::chrono::milliseconds PATIENCE(200);

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

/* When what it waits for has ended: NEVER if that is not known yet. */
double ready_of(const Task &t) {
    double ready = t.waits ? 0 : t.posted;
    if (t.event && t.event->model != Model::DONE) return NEVER;
    if (t.event) ready = std::max(ready, t.event->epoch == state().epoch ? t.event->seen : 0);
    for (const auto &b : t.before) {
        const TaskP before = b.lock();
        if (before && !before->timed) return NEVER;
        if (before) ready = std::max(ready, before->end);
    }
    return ready;
}

/* For a limited time, since a task may wait for the thread that is in here. */
bool wait_until_known(Lock &lock, const Task &t, std::chrono::milliseconds patience) {
    const auto began = Steady::now();
    while (!t.known && Steady::now() - began < patience)
        lock.wait_for(state().changed, std::chrono::milliseconds(1));
    return t.known;
}

void set_timed(Task &t) {
    t.timed = true;
    for (double *end : t.tell) *end = t.end;
    t.tell.clear();
}

/* The lane that is free first. */
double *first_lane(Workers &p) { return &*std::min_element(p.free_at.begin(), p.free_at.end()); }

/* The oldest of the tasks that can begin first, and when; none if nothing is ready for any lane. */
TaskP next_task(Workers &p, double *begin) {
    const double lane = *first_lane(p);
    TaskP next;
    *begin = NEVER;
    for (const auto &t : p.untimed) {
        const double could = std::max(lane, ready_of(*t.second));
        if (could >= *begin) continue;
        *begin = could;
        next = t.second;
    }
    return next;
}

/* Gives a task to the lane that is free first, if one begins at `limit` or before. Events that end
 * until then may make others ready: so the model runs to that time, and no further. */
bool give_next(Lock &lock, const void *pool, double limit, std::chrono::milliseconds patience) {
    double begin = NEVER, ran_to = -1;
    TaskP t;
    if (!pools().count(pool)) return false;
    Workers &p = pools()[pool];
    if (p.free_at.empty() || p.untimed.empty()) return false;
    for (;;) {
        t = next_task(p, &begin);
        const double to = std::min(begin, limit);
        if (to <= ran_to) break;
        if (to == NEVER) { /* nothing is ready: the next event may change that */
            const double next = model_next();
            if (next == NEVER) return false;
            run_model(lock, next, nullptr, patience, true);
        } else {
            run_model(lock, to, nullptr, patience, true);
            ran_to = to;
        }
        if (!pools().count(pool)) return false;
    }
    if (!t || begin > limit) return false;
    if (!wait_until_known(lock, *t, patience) && patience < PATIENCE) return false;
    if (!pools().count(pool)) return false;
    if (t->timed) return true;
    double *const lane = first_lane(p);
    t->begin = begin + (*lane < ready_of(*t) ? current().profile.host_wake : 0); /* it had parked */
    t->end = std::max(t->until, t->begin + length_of(*t, p.sharing));
    p.busy += t->end - t->begin;
    *lane = t->end;
    set_timed(*t);
    for (auto at = p.untimed.begin(); at != p.untimed.end(); ++at) {
        if (at->second != t) continue;
        p.untimed.erase(at);
        break;
    }
    return true;
}

/* Of a task that the awaiting thread does: it begins when that thread awaits it. */
void time_callers(Lock &lock, const void *pool, Task &t) {
    wait_until_known(lock, t, PATIENCE);
    if (t.event) run_model(lock, NEVER, t.event.get(), std::chrono::milliseconds(1000), true);
    const double ready = ready_of(t);
    t.begin = std::max(ready < NEVER ? ready : 0, clock_of_thread());
    t.end = std::max(t.until, t.begin + length_of(t, pools()[pool].sharing));
    set_timed(t);
}

/* Returns whether its times are known now. */
bool time_task(Lock &lock, const void *pool, const TaskP &t) {
    if (t->timed) return true;
    for (const auto &b : t->before) {
        const TaskP before = b.lock();
        if (before && !before->timed) (void)time_task(lock, pool, before);
    }
    if (t->callers && !t->timed) time_callers(lock, pool, *t);
    while (!t->timed && give_next(lock, pool, NEVER, PATIENCE)) continue;
    return t->timed;
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

int hostcuda_is_free(void) {
    static const bool is_free = [] {
        const char *const value = getenv("HOSTCUDA_FREE");
        return value && *value && strcmp(value, "0") != 0;
    }();
    return is_free;
}

void hostcuda_pool_begin(const void *pool, unsigned threads, unsigned sharing) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    Workers &p = pools()[pool];
    p = Workers();
    p.sharing = sharing;
    p.free_at.assign(threads, 0);
}

void hostcuda_pool_threads(const void *pool, unsigned threads, unsigned sharing) {
    const Hidden hidden;
    Lock lock(state().mutex);
    if (!pools().count(pool)) return;
    const double now = clock_of_thread();
    while (give_next(lock, pool, now, PATIENCE)) continue;
    Workers &p = pools()[pool];
    p.sharing = sharing;
    while (p.free_at.size() < threads) p.free_at.push_back(now);
    while (p.free_at.size() > std::max(1u, threads))
        p.free_at.erase(std::min_element(p.free_at.begin(), p.free_at.end()));
}

double hostcuda_pool_busy(const void *pool) {
    const Hidden hidden;
    Lock lock(state().mutex);
    if (!pools().count(pool)) return 0;
    const double now = clock_of_thread();
    while (give_next(lock, pool, now, PATIENCE)) continue;
    const Workers &p = pools()[pool];
    double busy = p.busy;
    for (const double end : p.free_at) busy -= std::max(0.0, end - now);
    return busy;
}

void hostcuda_pool_end(const void *pool) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    pools().erase(pool);
}

void hostcuda_task_post(const void *pool, size_t number, cudaEvent_t event, const size_t before[2],
                        int callers) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    const auto at = pools().find(pool);
    if (at == pools().end()) return;
    Workers &p = at->second;
    const TaskP t = std::make_shared<Task>();
    const EventP e = find(state().events, event);
    if (e) t->event = e->record;
    t->waits = event != nullptr;
    for (int k = 0; k < 2; ++k) {
        if (before[k] == SIZE_MAX) continue;
        t->before[k] = task_of(pool, before[k]);
        t->waits = true;
    }
    t->posted = clock_of_thread();
    t->callers = callers || p.free_at.empty();
    p.tasks[number] = t;
    if (!t->callers) p.untimed[number] = t;
    if (p.tasks.size() > KEPT && p.tasks.begin()->second->timed) p.tasks.erase(p.tasks.begin());
}

void hostcuda_pool_cut(const void *pool, size_t from) {
    const Hidden hidden;
    const Lock lock(state().mutex);
    const auto at = pools().find(pool);
    if (at == pools().end()) return;
    at->second.untimed.erase(at->second.untimed.lower_bound(from), at->second.untimed.end());
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
    if (t->callers) return t->timed ? t->end <= clock_of_thread() : t->known;
    while (!t->timed && give_next(lock, pool, clock_of_thread(), std::chrono::milliseconds(1)))
        continue;
    if (t->timed) return t->end <= clock_of_thread();
    double begin = NEVER;
    const TaskP next = next_task(pools()[pool], &begin);
    if (begin > clock_of_thread() || !next || next->known) return 0;
    return is_patient(*t) ? -1 : 0; /* it depends on one that is being done */
}

size_t hostcuda_task_first(const void *pool, const size_t *numbers, size_t num) {
    const Hidden hidden;
    Lock lock(state().mutex);
    const double now = clock_of_thread();
    const std::chrono::milliseconds patience(100); /* then it says that it does not know */
    while (give_next(lock, pool, now, patience)) continue;
    for (;;) {
        double end = NEVER;
        size_t best = num;
        for (size_t k = 0; k < num; ++k) {
            const TaskP t = task_of(pool, numbers[k]);
            if (!t || t->callers || (t->timed && t->end <= now)) return k;
            if (!t->timed || t->end >= end) continue;
            end = t->end;
            best = k;
        }
        if (!give_next(lock, pool, end, patience)) return best;
    }
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
